"""train.py SHARDS: a check that all ranks share, and a loader for each of them."""

import sys

import torch.distributed

from shardproof import ShuffledDataLoader, distributed

shards = sys.argv[1]
torch.distributed.init_process_group("gloo")  # "nccl" on GPUs
rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()

# Each rank checks its part, and all raise the same error: none waits for one that gave up.
distributed.validate(shards, level="complete").raise_for_findings()

loader = ShuffledDataLoader(
    shards, layer=6, rank=rank, world_size=world_size, even_batches=True, framework="torch"
)
n_rows = sum(len(batch["act"]) for batch in loader)
print(f"rank {rank} of {world_size} has seen {n_rows} rows", flush=True)
torch.distributed.destroy_process_group()
