"""What a checkpoint's metadata says, for people."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from shardproof._base.messages import printable, shown
from shardproof.cli.terminal import console, print_lines, print_table

if TYPE_CHECKING:
    from shardproof.checkpoint import CheckpointMetadata

__all__ = ["print_metadata"]


def print_metadata(prefix: str, metadata: "CheckpointMetadata", limit: int | None) -> None:
    """Print what metadata say, and of all tensors the first ``limit``."""
    out, sharding = console(wraps=True), metadata.sharding
    print_lines(out, [printable(f"'{shown(prefix)}'")], lambda line: Text(line, "bold"))
    about = {
        "step": str(metadata.step),
        "world size": str(metadata.world_size),
        "written": metadata.timestamp,
        "strategy": sharding.strategy,
        "precision": sharding.precision,
    }
    print_lines(out, [*(f"{name}: {_on_one_line(text)}" for name, text in about.items()), ""])
    print_table(out, _SHARDS, lambda: _shard_rows(metadata))
    print_lines(out, [""])
    print_table(out, _TENSORS, lambda: itertools.islice(_tensor_rows(metadata), limit))
    n_tensors = sum(len(shard.tensors) for shard in metadata.shards)
    if limit is not None and n_tensors > limit:
        print_lines(out, [f"and {n_tensors - limit} more; --tensors lists all"])


_Row = tuple[str | Text, ...]

_SHARDS = ("Rank", "File", "Bytes", "Tensors", "Checksum")
_TENSORS = ("Rank", "Tensor", "Type", "Shape", "Bytes")


def _shard_rows(metadata: "CheckpointMetadata") -> Iterator[_Row]:
    for shard in metadata.shards:
        counts = str(shard.file_size), str(len(shard.tensors))
        checksum = _folded(shard.checksum or "none")
        yield str(shard.rank), _folded(shard.file), *counts, checksum


def _tensor_rows(metadata: "CheckpointMetadata") -> Iterator[_Row]:
    for shard in metadata.shards:
        for tensor in shard.tensors:
            shape = _folded("x".join(map(str, tensor.shape)) or "-")
            name = _folded(tensor.name)
            yield str(shard.rank), name, tensor.dtype, shape, str(tensor.size)


def _folded(text: str) -> Text:
    return Text(_on_one_line(text), overflow="fold")


def _on_one_line(text: str) -> str:
    return printable(text).replace("\n", r"\n")
