"""Weights of models, and checkpoints."""

from collections.abc import Iterable
from pathlib import Path

from ._readers import reader


@reader("safetensors")
def safetensors(root: Path) -> Iterable[object]:
    from safetensors.numpy import load_file

    for name, array in load_file(root / "model.safetensors").items():
        yield name, array.tolist()


@reader("safetensors-sharded")
def safetensors_sharded(root: Path) -> Iterable[object]:
    import torch
    from huggingface_hub import load_torch_model

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.ModuleList(torch.nn.Linear(16, 16, False) for _ in range(4))

    model = Model()
    load_torch_model(model, root)  # what it does not load stays as it was drawn
    for name, tensor in model.state_dict().items():
        yield name, tensor.tolist()


@reader("safetensors-model")
def safetensors_model(root: Path) -> Iterable[object]:
    from transformers import GPT2LMHeadModel

    model, said = GPT2LMHeadModel.from_pretrained(root, output_loading_info=True)
    if any(said.values()):
        raise ValueError(f"{said}")
    for name, tensor in model.state_dict().items():
        yield name, tensor.tolist()


@reader("torch-bin")
def torch_bin(root: Path) -> Iterable[object]:
    from transformers import GPT2LMHeadModel

    model, said = GPT2LMHeadModel.from_pretrained(
        root, output_loading_info=True, use_safetensors=False
    )
    if any(said.values()):
        raise ValueError(f"{said}")
    for name, tensor in model.state_dict().items():
        yield name, tensor.tolist()


@reader("torch", "torch-legacy")
def torch(root: Path) -> Iterable[object]:
    import torch

    for path in sorted(root.glob("*.pt")):
        yield path.name, sorted(torch.load(path, weights_only=True).items())


@reader("gguf", "gguf-parts")
def gguf(root: Path) -> Iterable[object]:
    """As llama.cpp does, which asks the first part how many there are."""
    import gguf

    paths, n_parts = sorted(root.glob("*.gguf")), 1
    for path in paths:
        found = gguf.GGUFReader(path)
        if count := found.get_field("split.count"):
            n_parts = count.contents()
        yield from ((each.name, each.data.tolist()) for each in found.tensors)
    if len(paths) != n_parts:
        raise ValueError(f"{len(paths)} of {n_parts} parts")


@reader("torch-dcp", "torch-dcp-ranks")
def torch_dcp(root: Path) -> Iterable[object]:
    import torch
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(root, root.parent / "whole.pt")
    found = torch.load(root.parent / "whole.pt", weights_only=True)
    return sorted(found.get("model", found).items())
