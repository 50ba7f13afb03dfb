"""Directories of many shards that real libraries wrote: one of them, copied under their names."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["COPIED", "copied"]

GOLDENS = Path(__file__).parents[1] / "tests" / "goldens"


def _filled(
    name: str, shards: Callable[[Any], list[Any]], key: str
) -> Callable[[Path, list[str]], None]:
    """Return what makes an index: its first entry for each file."""

    def fill(path: Path, names: list[str]) -> None:
        index = json.loads((path / name).read_text())
        entries = shards(index)
        entries[:] = [{**entries[0], key: each} for each in names]
        (path / name).write_text(json.dumps(index))

    return fill


class _Copied(NamedTuple):
    golden: str
    shards: tuple[str, ...]
    names: tuple[str, ...]
    list_file: str | None = None
    fill: Callable[[Path, list[str]], None] = lambda _, __: None


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
        "state.json",
        _filled("state.json", lambda index: index["_data_files"], "filename"),
    ),
    "litdata": _Copied(
        "litdata-classic",
        ("chunk-0-0.bin",),
        ("chunk-0-{}.bin",),
        "index.json",
        _filled("index.json", lambda index: index["chunks"], "filename"),
    ),
    "wids": _Copied(
        "wids",
        ("train-000000.tar",),
        ("train-{:06}.tar",),
        "shardindex.json",
        _filled("shardindex.json", lambda index: index["shardlist"], "url"),
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
    if case.list_file is not None:
        shutil.copy(GOLDENS / case.golden / case.list_file, to)
        case.fill(to, [case.names[0].format(number, n=n_shards) for number in range(n_shards)])
    return to
