"""Directories of many shards that real libraries wrote: one of them, copied under their names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["COPIED", "copied"]

GOLDENS = Path(__file__).parents[1] / "tests" / "goldens"


class _Listing(NamedTuple):
    """A file that has an entry for each shard, which names it by a key."""

    file: str
    entries: Callable[[Any], list[Any]]
    key: str


class _Copied(NamedTuple):
    golden: str
    shards: tuple[str, ...]
    names: tuple[str, ...]
    listing: _Listing | None = None


COPIED = {
    "npy": _Copied("npy", ("train_000000.npy",), ("train_{:06}.npy",)),
    "llmc": _Copied("llmc", ("corpus_train_000000.bin",), ("corpus_train_{:06}.bin",)),
    "tfrecord": _Copied(
        "tfrecord", ("train.tfrecord-00000-of-00002",), ("train.tfrecord-{:05}-of-{n:05}",)
    ),
    "megatron": _Copied("megatron-uint16", ("train.bin", "train.idx"), ("{:05}.bin", "{:05}.idx")),
    "arrow": _Copied(
        "arrow",
        ("data-00000-of-00003.arrow",),
        ("data-{:05}-of-{n:05}.arrow",),
        _Listing("state.json", lambda index: index["_data_files"], "filename"),
    ),
    "litdata": _Copied(
        "litdata-classic",
        ("chunk-0-0.bin",),
        ("chunk-0-{}.bin",),
        _Listing("index.json", lambda index: index["chunks"], "filename"),
    ),
    "wids": _Copied(
        "wids",
        ("train-000000.tar",),
        ("train-{:06}.tar",),
        _Listing("shardindex.json", lambda index: index["shardlist"], "url"),
    ),
}


def copied(form: str, n_files: int, to: Path) -> Path:
    """Write a directory of so many files, all alike, and return its path."""
    case = COPIED[form]
    n_shards = n_files // len(case.shards)
    to.mkdir()
    for shard, name in zip(case.shards, case.names, strict=True):
        data = (GOLDENS / case.golden / shard).read_bytes()
        for number in range(n_shards):
            (to / name.format(number, n=n_shards)).write_bytes(data)
    if case.listing is not None:
        listed = json.loads((GOLDENS / case.golden / case.listing.file).read_text())
        entries = case.listing.entries(listed)
        names = (case.names[0].format(number, n=n_shards) for number in range(n_shards))
        entries[:] = [{**entries[0], case.listing.key: name} for name in names]
        (to / case.listing.file).write_text(json.dumps(listed))
    return to
