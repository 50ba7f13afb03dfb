"""Loaders that people use: how a directory of each format is written, and how it is opened.

A sample is one example: float32, of shape (layers, tokens, d_model).
"""

import importlib.machinery
import json
import sys
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path

import litdata
import numpy as np
import torch
import torch.utils.data
import webdataset
from litdata.streaming.writer import BinaryWriter

from shardproof.testing import Layout


def _stand_in_for_torchvision() -> None:
    """Streaming imports it for images; one that was built for another torch can't be imported."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        for name in ("", ".datasets", ".transforms", ".transforms.functional"):
            module = types.ModuleType("torchvision" + name)
            module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
            sys.modules[module.__name__] = module
        sys.modules["torchvision.datasets"].VisionDataset = object
        sys.modules["torchvision.transforms.functional"].to_tensor = None


_stand_in_for_torchvision()

import streaming  # noqa: E402 - after the stand-in


def _examples(value: Layout) -> Iterator[np.ndarray]:
    """Shard after shard, the examples in it."""
    for index, name in enumerate(value.shard_names):
        shard = np.frombuffer(value.read_bytes(name), "<f4").reshape(value.shard_shape)
        yield shard[: value.examples_in(index)].copy()


# Written with nothing but numpy, over the directories of saev.


def _manifest(path) -> tuple[list[dict], tuple[int, ...]]:
    metadata = json.loads((Path(path) / "metadata.json").read_text())
    shards = json.loads((Path(path) / "shards.json").read_text())
    tokens = metadata["content_tokens_per_example"] + metadata["cls_token"]
    layers = len(metadata["layers"])
    examples = metadata["max_tokens_per_shard"] // (tokens * layers)
    return shards, (examples, layers, tokens, metadata["d_model"])


class FromFile:
    """One `np.fromfile` a shard, when its turn comes."""

    def __init__(self, path) -> None:
        self._path = Path(path)
        self._shards, self._shape = _manifest(path)

    def __iter__(self) -> Iterator[np.ndarray]:
        for shard in self._shards:
            acts = np.fromfile(self._path / shard["name"], dtype=np.float32)
            yield from acts.reshape(-1, *self._shape[1:])[: shard["n_examples"]]


class Memmap(torch.utils.data.Dataset):
    """One `np.memmap` a shard, all made on opening."""

    def __init__(self, path) -> None:
        shards, self._shape = _manifest(path)
        self._n_examples = sum(shard["n_examples"] for shard in shards)
        self._shards = [
            np.memmap(Path(path) / shard["name"], np.float32, mode="r", shape=self._shape)
            for shard in shards
        ]

    def __len__(self) -> int:
        return self._n_examples

    def __getitem__(self, index: int) -> torch.Tensor:
        shard, example = divmod(index, self._shape[0])
        return torch.from_numpy(self._shards[shard][example].copy())


def open_memmap(path, *, num_workers: int = 0, seed: int | None = None):
    """torch's `DataLoader` over `Memmap`."""
    return torch.utils.data.DataLoader(
        Memmap(path),
        batch_size=2,
        shuffle=seed is not None,
        num_workers=num_workers,
        generator=None if seed is None else torch.Generator().manual_seed(seed),
    )


# MosaicML Streaming


def write_mds(value: Layout, base: Path) -> Path:
    shape = ",".join(map(str, value.shard_shape[1:]))
    columns = {"acts": f"ndarray:float32:{shape}"}
    with streaming.MDSWriter(out=str(base), columns=columns, hashes=["xxh64"]) as writer:
        for shard in _examples(value):
            for example in shard:
                writer.write({"acts": example})
            writer.flush_shard()  # and this, as write() does where a shard is full
            writer._reset_cache()
    return base


def mds_files(path: Path) -> list[Path]:
    index = json.loads((path / "index.json").read_text())
    return [path / shard["raw_data"]["basename"] for shard in index["shards"]]


def open_mds(path, *, seed: int | None = None, validate_hash: str | None = None):
    """In place: ``local`` is the shared directory."""
    shuffle = {} if seed is None else {"shuffle": True, "shuffle_seed": seed}
    data = streaming.StreamingDataset(
        local=str(path), batch_size=1, validate_hash=validate_hash, **shuffle
    )
    return streaming.StreamingDataLoader(data, batch_size=1)


def open_mds_cache(path, *, validate_hash: str | None = None):
    """From a fresh cache: ``remote`` is the shared directory."""
    data = streaming.StreamingDataset(
        remote=str(path),
        local=tempfile.mkdtemp(prefix="mds-cache-"),
        batch_size=1,
        validate_hash=validate_hash,
    )
    return streaming.StreamingDataLoader(data, batch_size=1)


# LitData


def write_litdata(value: Layout, base: Path) -> Path:
    writer = BinaryWriter(str(base), chunk_size=value.examples_per_shard)
    examples = (example for shard in _examples(value) for example in shard)
    for index, example in enumerate(examples):
        writer[index] = example
    writer.done()
    writer.merge()
    return base


def litdata_files(path: Path) -> list[Path]:
    index = json.loads((path / "index.json").read_text())
    return [path / chunk["filename"] for chunk in index["chunks"]]


def open_litdata(path, *, seed: int | None = None):
    shuffle = {} if seed is None else {"shuffle": True, "seed": seed}
    return litdata.StreamingDataLoader(litdata.StreamingDataset(path, **shuffle), batch_size=1)


# WebDataset

_last_shard: dict[Path, int] = {}


def write_webdataset(value: Layout, base: Path) -> Path:
    base.mkdir()
    for index, shard in enumerate(_examples(value)):
        with webdataset.TarWriter(str(base / f"{index:06}.tar")) as writer:
            for number, example in enumerate(shard):
                writer.write({"__key__": f"{index:06}{number:06}", "acts.npy": example})
    _last_shard[base] = value.n_shards - 1
    return base


def webdataset_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.tar"))


def open_webdataset(path, *, seed: int | None = None):
    """The URL says how many shards there are, as that of a training script does."""
    last = _last_shard.get(Path(path).absolute(), 3)
    urls = f"{path}/{{000000..{last:06}}}.tar"
    if seed is None:
        data = webdataset.WebDataset(urls, shardshuffle=False)
    else:
        data = webdataset.WebDataset(urls, shardshuffle=100, seed=seed).shuffle(100, seed=seed)
    return data.decode().to_tuple("acts.npy")
