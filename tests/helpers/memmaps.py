"""A plain reading of saev's protocol with np.memmap: what the loaders are held against."""

import json
from pathlib import Path

import numpy as np

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}


def rows(path: Path, layer: int | str, tokens: str) -> list[tuple]:
    """Each wanted row in the file's order: (bytes, example, layer, token, label)."""
    metadata = json.loads((path / "metadata.json").read_text())
    shards = json.loads((path / "shards.json").read_text())
    labels = _labels(path, metadata)
    found = []
    for number, shard in enumerate(shards):
        acts = _shard(path / shard["name"], metadata)
        for example in range(shard["n_examples"]):
            at = number * len(acts) + example
            found += _example(acts[example], at, metadata, layer, tokens, labels)
    return found


def _shard(path: Path, metadata: dict) -> np.ndarray:
    n_tokens = metadata["content_tokens_per_example"] + metadata["cls_token"]
    n_layers = len(metadata["layers"])
    n_examples = metadata["max_tokens_per_shard"] // (n_tokens * n_layers)
    shape = (n_examples, n_layers, n_tokens, metadata["d_model"])
    return np.memmap(path, TYPES[metadata["dtype"]], "r", shape=shape)


def _labels(path: Path, metadata: dict) -> np.ndarray | None:
    if not (path / "labels.bin").exists():
        return None
    n_examples, n_tokens = metadata["n_examples"], metadata["content_tokens_per_example"]
    return np.fromfile(path / "labels.bin", np.uint8).reshape(n_examples, n_tokens)


def _example(acts, number, metadata, layer, tokens, labels) -> list[tuple]:
    found = []
    for place, recorded in enumerate(metadata["layers"]):
        if layer not in ("all", recorded):
            continue
        for token in range(-metadata["cls_token"], metadata["content_tokens_per_example"]):
            if tokens not in ("all", "special" if token < 0 else "content"):
                continue
            label = None if labels is None else int(labels[number, token]) if token >= 0 else 255
            act = acts[place, token + metadata["cls_token"]].tobytes()
            found.append((act, number, recorded, token, label))
    return found


def delivered(batch, layer: int | str) -> list[tuple]:
    """The rows of a batch, in the same form."""
    count = len(batch["act"])
    layers = batch["layer"].tolist() if layer == "all" else [layer] * count
    labels = batch["token_label"].tolist() if "token_label" in batch else [None] * count
    acts = [act.tobytes() for act in batch["act"]]
    examples, tokens = batch["example_idx"].tolist(), batch["token_idx"].tolist()
    return list(zip(acts, examples, layers, tokens, labels, strict=True))
