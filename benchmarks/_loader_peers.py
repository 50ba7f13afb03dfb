"""Loaders of others, and ours under torch's, as contenders of loaders.py.

A peer's clock starts with its first batch, which is not counted: starting is free for all of them.
"""

import functools
import importlib
import importlib.machinery
import importlib.util
import itertools
import logging
import multiprocessing.queues
import os
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shardproof import Metadata, ShardInfo
from shardproof.loaders import IndexedDataset, OrderedDataLoader

Run = Callable[[], float]

N_EXAMPLES = 850
"""What a peer with a format of its own is given, as examples."""
N_TOKENS = 20_480
"""... and as single tokens."""
BATCH_EXAMPLES, BATCH_TOKENS = 85, 4096
CHUNK_BYTES = 2**26


def rate(counts: Iterable[int], *, limit: float = float("inf"), skip_first: bool = False) -> float:
    """Return how many rows a second come, from counts of batches."""
    iterator = iter(counts)
    if skip_first:
        next(iterator)
    begin, n_rows = time.perf_counter(), 0
    for count in iterator:
        n_rows += count
        if n_rows >= limit:
            break
    # The iterator is still held here, so what it does at its end is not timed.
    return n_rows / (time.perf_counter() - begin)


# saev itself.


def saev_missing(checkout: str | None) -> str:
    """Why saev can't run here; empty where it can."""
    if not checkout:
        return "no --saev"
    needed = ("torch", "beartype", "einops", "jaxtyping", "orjson", "scipy", "PIL")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} not installed" if missing else ""


def saev_version(checkout: str | None) -> str:
    """Return the commit of the checkout, as text to append."""
    if not checkout or not Path(checkout, ".git").exists():
        return ""
    argv = ["git", "-C", checkout, "rev-parse", "--short", "HEAD"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return f", saev at {done.stdout.strip()}"


def load_saev(checkout: str, module: str) -> Any:
    """Return a module of saev.data, without running the packages' own __init__."""
    for package in ("saev", "saev.data"):
        made = types.ModuleType(package)
        made.__path__ = [os.fspath(Path(checkout, "src", *package.split(".")))]
        sys.modules[package] = made
    _stand_in_for_torchvision(always=True)
    # saev is for Python 3.12, where a queue's type takes a parameter; 3.11 has all else it needs.
    queue: Any = multiprocessing.queues.Queue
    if not hasattr(queue, "__class_getitem__"):
        queue.__class_getitem__ = classmethod(types.GenericAlias)
    logging.disable(logging.INFO)
    return importlib.import_module(f"saev.data.{module}")


def saev_ordered(shards_dir: Path, n_rows: str, checkout: str) -> Run:
    module = load_saev(checkout, "ordered")
    loader = module.DataLoader(module.Config(shards=shards_dir, layer=0))
    return functools.partial(_saev_run, loader, int(n_rows))


def saev_shuffled(shards_dir: Path, n_rows: str, checkout: str) -> Run:
    """With a pool of as many rows as ours; saev's default has 8 times as many."""
    module = load_saev(checkout, "shuffled")
    loader = module.DataLoader(module.Config(shards=shards_dir, layer=0, buffer_size=8))
    return functools.partial(_saev_run, loader, int(n_rows))


def _saev_run(loader: Any, n_rows: int) -> float:
    """Rows a second after the first batch; for no rows, milliseconds to the first batch."""
    begin = time.perf_counter()
    batches = iter(loader)
    try:
        if n_rows:
            counts = (len(batch["act"]) for batch in batches)
            return rate(counts, limit=n_rows, skip_first=True)
        next(batches)
        return (time.perf_counter() - begin) * 1e3
    finally:
        batches.close()


def saev_indexed(shards_dir: Path, n_rows: str, checkout: str) -> Run:
    module = load_saev(checkout, "indexed")
    dataset = module.Dataset(module.Config(shards=shards_dir, layer=0))
    rows = np.random.default_rng(0).permutation(len(dataset))[: int(n_rows)].tolist()
    return lambda: rate(len(dataset[row]["act"]) // dataset.d_model for row in rows)


# Ours, under torch's DataLoader.


def as_tensors(batch: Any) -> Any:
    """Torch hands tensors from process to process without a copy, arrays through a pipe."""
    torch = importlib.import_module("torch")
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def torch_indexed(shards_dir: Path) -> Run:
    data = importlib.import_module("torch.utils.data")
    dataset = IndexedDataset(shards_dir, layer=0)
    options = {"batch_size": BATCH_TOKENS, "shuffle": True, "collate_fn": as_tensors}
    loader = data.DataLoader(dataset, num_workers=2, **options)
    counts = functools.partial(map, lambda batch: len(batch["act"]))
    return lambda: rate(counts(loader), skip_first=True)


def torch_ordered(shards_dir: Path) -> Run:
    data = importlib.import_module("torch.utils.data")
    ours = OrderedDataLoader(shards_dir, layer=0, framework="torch").torch_dataset()
    loader = data.DataLoader(ours, batch_size=None, num_workers=2)
    counts = functools.partial(map, lambda batch: len(batch["act"]))
    return lambda: rate(counts(loader), skip_first=True)


# Formats of their own: a sample is an example, of all its tokens, or a token.


def samples(shards_dir: Path, kind: str) -> Iterator[Any]:
    """The first examples, or the first tokens."""
    shape = Metadata.load(shards_dir).shard_shape
    for shard in ShardInfo.load(shards_dir):
        acts = np.memmap(shards_dir / shard.name, np.float32, mode="r", shape=shape)
        for example in acts[:, 0]:
            whole = np.array(example)
            yield from [whole] if kind == "example" else whole


def first_samples(shards_dir: Path, kind: str) -> Iterator[Any]:
    n_samples = N_EXAMPLES if kind == "example" else N_TOKENS
    return itertools.islice(samples(shards_dir, kind), n_samples)


Writer = Callable[[Path, Iterator[Any]], None]


def written(shards_dir: Path, peer: str, kind: str, write: Writer) -> Path:
    """Return a peer's directory, which is made beside the others where it is not there yet."""
    n_samples = N_EXAMPLES if kind == "example" else N_TOKENS
    target = shards_dir.parents[1] / f"{peer}-{n_samples}-{kind}s"
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        write(partial, first_samples(shards_dir, kind))
        os.sync()  # so that writing back is over before anything is timed
        partial.rename(target)
    return target


def _delivered(loader: Any, kind: str) -> Iterator[int]:
    """How many tokens each batch has."""
    for batch in loader:
        acts = batch["acts"] if isinstance(batch, dict) else batch
        acts = acts[0] if isinstance(acts, (list, tuple)) else acts
        yield len(acts) * (acts.shape[1] if kind == "example" else 1)


def _peer_run(loader: Any, kind: str) -> Run:
    return lambda: rate(_delivered(loader, kind), skip_first=True)


def _batch_size(kind: str) -> int:
    return BATCH_EXAMPLES if kind == "example" else BATCH_TOKENS


def _stand_in_for_torchvision(*, always: bool = False) -> None:
    """Both import it for pictures; a wheel for another build of torch can't be imported."""
    try:
        if always:
            raise ImportError
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        for name in ("", ".datasets", ".transforms", ".transforms.functional"):
            module: Any = types.ModuleType("torchvision" + name)
            module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None)
            module.VisionDataset = module.ImageFolder = object
            module.to_tensor = None
            sys.modules[module.__name__] = module
        sys.modules["torchvision"].datasets = (  # type: ignore[attr-defined]
            sys.modules["torchvision.datasets"]
        )


def mds(shards_dir: Path, kind: str) -> Run:
    """MosaicML Streaming, in place."""
    _stand_in_for_torchvision()
    streaming = importlib.import_module("streaming")
    streaming.base.util.clean_stale_shared_memory()
    path = written(shards_dir, "mds", kind, functools.partial(_write_mds, streaming))
    size = _batch_size(kind)
    dataset = streaming.StreamingDataset(local=os.fspath(path), batch_size=size, shuffle=False)
    return _peer_run(streaming.StreamingDataLoader(dataset, batch_size=size), kind)


def _write_mds(streaming: Any, path: Path, found: Iterator[Any]) -> None:
    first = next(found)
    columns = {"acts": f"ndarray:float32:{','.join(map(str, first.shape))}"}
    options = {"columns": columns, "size_limit": CHUNK_BYTES}
    with streaming.MDSWriter(out=os.fspath(path), **options) as writer:
        for sample in itertools.chain([first], found):
            writer.write({"acts": sample})


def litdata(shards_dir: Path, kind: str) -> Run:
    """LitData, in place."""
    module = importlib.import_module("litdata")
    path = written(shards_dir, "litdata", kind, _write_litdata)
    dataset = module.StreamingDataset(os.fspath(path), shuffle=False)
    return _peer_run(module.StreamingDataLoader(dataset, batch_size=_batch_size(kind)), kind)


def _write_litdata(path: Path, found: Iterator[Any]) -> None:
    writers = importlib.import_module("litdata.streaming.writer")
    writer = writers.BinaryWriter(os.fspath(path), chunk_bytes=CHUNK_BYTES)
    for index, sample in enumerate(found):
        writer[index] = sample
    writer.done()
    writer.merge()


def webdataset(shards_dir: Path, kind: str) -> Run:
    """WebDataset, from tar files."""
    module = importlib.import_module("webdataset")
    path = written(shards_dir, "webdataset", kind, _write_webdataset)
    files = sorted(map(os.fspath, path.glob("*.tar")))
    data = module.WebDataset(files, shardshuffle=False).decode().to_tuple("acts.npy")
    return _peer_run(data.batched(_batch_size(kind)), kind)


def _write_webdataset(path: Path, found: Iterator[Any]) -> None:
    module = importlib.import_module("webdataset")
    path.mkdir()
    pattern = os.fspath(path / "%06d.tar")
    with module.ShardWriter(pattern, maxsize=CHUNK_BYTES, verbose=0) as writer:
        for number, sample in enumerate(found):
            writer.write({"__key__": f"{number:09}", "acts.npy": sample})


CONTENDERS: dict[str, Callable[..., Run]] = {
    "saev_ordered": saev_ordered,
    "saev_shuffled": saev_shuffled,
    "saev_indexed": saev_indexed,
    "torch_indexed": torch_indexed,
    "torch_ordered": torch_ordered,
    **{
        f"{peer.__name__}_{kind}": functools.partial(peer, kind=kind)
        for peer in (mds, litdata, webdataset)
        for kind in ("example", "token")
    },
}

_EXAMPLES, _TOKENS = f"{N_EXAMPLES * 197} rows", f"{N_TOKENS} rows"

OTHERS = [
    ("torch, 2 workers, `IndexedDataset`, shuffled", "torch", "torch_indexed", ""),
    ("torch, 2 workers, `OrderedDataLoader.torch_dataset()`", "torch", "torch_ordered", ""),
    ("MosaicML Streaming, a sample an example", "streaming", "mds_example", _EXAMPLES),
    ("MosaicML Streaming, a sample a token", "streaming", "mds_token", _TOKENS),
    ("LitData, a sample an example", "litdata", "litdata_example", _EXAMPLES),
    ("LitData, a sample a token", "litdata", "litdata_token", _TOKENS),
    ("WebDataset, a sample an example", "webdataset", "webdataset_example", _EXAMPLES),
    ("WebDataset, a sample a token", "webdataset", "webdataset_token", _TOKENS),
]
"""What it is, the module it needs, the contender, and what part of the data it gets."""
