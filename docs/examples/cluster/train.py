"""train.py SHARDS: a loader for each rank of torchrun; all of them share one check."""

import sys

import torch.distributed

from shardproof import ShuffledDataLoader

torch.distributed.init_process_group("gloo")  # "nccl" on GPUs
group = torch.distributed.group.WORLD

# Each rank checks a part of the shards. All of them go on, or all raise the same error.
loader = ShuffledDataLoader(sys.argv[1], layer=6, group=group, even_batches=True, framework="torch")
n_rows = sum(len(batch["act"]) for batch in loader)
print(f"rank {group.rank()} of {group.size()} has seen {n_rows} rows", flush=True)
torch.distributed.destroy_process_group()
