"""Weights of models, and checkpoints."""

import os
from pathlib import Path

from ._cases import case, package


@case(package("safetensors", "numpy"))
def safetensors(to: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    save_file({"w": np.ones((8, 8), np.float32), "b": np.arange(8)}, to / "model.safetensors")


@case(package("huggingface_hub", "torch"))
def safetensors_sharded(to: Path) -> None:
    import torch
    from huggingface_hub import save_torch_state_dict

    state = {f"layer.{n}.weight": torch.full((16, 16), float(n)) for n in range(4)}
    save_torch_state_dict(state, str(to), max_shard_size=1500)


@case(package("transformers", "torch"))
def safetensors_model(to: Path) -> None:
    """A whole model, of which two parts share their weights."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=24, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(to, max_shard_size="2KB")


@case(package("transformers", "torch"))
def torch_bin(to: Path) -> None:
    """A model in pickles, as transformers wrote it before safetensors."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=24, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    GPT2LMHeadModel(config).save_pretrained(to, max_shard_size="2KB", safe_serialization=False)


@case(package("torch"))
def torch(to: Path, *, legacy: bool = False) -> None:
    import torch

    for step in range(2):
        state = {"model": {"w": torch.ones(16, 16), "b": torch.arange(16)}, "step": step}
        name = to / f"step_{step}.pt"
        torch.save(state, name, _use_new_zipfile_serialization=not legacy)


@case(package("torch"))
def torch_legacy(to: Path) -> None:
    """As torch wrote files before 1.6: a row of pickles, and the storages."""
    torch(to, legacy=True)


@case(package("gguf"))
def gguf(to: Path, **options: int) -> None:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(to / "model.gguf", "llama", **options)
    writer.add_block_count(2)
    writer.add_token_list([b"<s>", b"a", b"b"])
    writer.add_token_scores([0.0, 1.0, 2.0])
    for number in range(3):
        writer.add_tensor(f"blk.{number}.weight", np.full((4, 32), number, np.float32))
    blocks = gguf.quantize(np.ones((4, 64), np.float32), gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("output.bias", np.ones(3, np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@case(package("gguf"))
def gguf_parts(to: Path) -> None:
    gguf(to, split_max_tensors=2)


@case(package("torch"))
def torch_dcp(to: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    state = {"model": {"w": torch.ones(16, 16), "b": torch.arange(16)}, "step": 3}
    dcp.save(state, checkpoint_id=str(to))


@case(package("torch"))
def torch_dcp_ranks(to: Path) -> None:
    """Of two processes, each with a half of some tensors."""
    import torch

    torch.multiprocessing.spawn(save_of_rank, (str(to), f"{to}.rendezvous"), nprocs=2)


def save_of_rank(rank: int, to: str, meeting: str) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    halves = distribute_tensor(torch.arange(64.0).reshape(8, 8), mesh, [Shard(0)])
    uneven = distribute_tensor(torch.arange(15), mesh, [Shard(0)])
    state = {"halves": halves, "uneven": uneven, "same": torch.ones(3), "step": 3}
    dcp.save(state, checkpoint_id=to)
    dist.destroy_process_group()
