"""What a checkpoint's metadata says, for people."""

import itertools
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shardproof._messages import printable, shown

if TYPE_CHECKING:
    from shardproof.checkpoint import CheckpointMetadata

__all__ = ["console", "print_metadata"]


def console() -> Console:
    """Return what prints on standard output, with colours on a terminal."""
    # What is no terminal is a file or a program: they take lines as they are.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 100_000)


def print_metadata(prefix: str, metadata: "CheckpointMetadata", limit: int | None) -> None:
    """Print what metadata say, and of all tensors the first ``limit``."""
    out, sharding = console(), metadata.sharding
    out.print(Text(printable(f"'{shown(prefix)}'"), "bold"))
    about = {
        "step": str(metadata.step),
        "world size": str(metadata.world_size),
        "written": metadata.timestamp,
        "strategy": sharding.strategy,
        "precision": sharding.precision,
    }
    out.print(Text("\n".join(f"{name}: {_on_one_line(text)}" for name, text in about.items())))
    out.print()
    out.print(_shards_table(metadata))
    out.print()
    out.print(_tensors_table(metadata, limit))
    n_tensors = sum(len(shard.tensors) for shard in metadata.shards)
    if limit is not None and n_tensors > limit:
        out.print(Text(f"and {n_tensors - limit} more; --tensors lists all"))


def _shards_table(metadata: "CheckpointMetadata") -> Table:
    table = Table("Rank", "File", "Bytes", "Tensors", "Checksum", box=None, pad_edge=False)
    for shard in metadata.shards:
        counts = str(shard.file_size), str(len(shard.tensors))
        checksum = _folded(shard.checksum or "none")
        table.add_row(str(shard.rank), _folded(shard.file), *counts, checksum)
    return table


def _tensors_table(metadata: "CheckpointMetadata", limit: int | None) -> Table:
    table = Table("Rank", "Tensor", "Type", "Shape", "Bytes", box=None, pad_edge=False)
    rows = ((shard.rank, tensor) for shard in metadata.shards for tensor in shard.tensors)
    for rank, tensor in itertools.islice(rows, limit):
        shape = "x".join(map(str, tensor.shape)) or "-"
        table.add_row(
            str(rank), _folded(tensor.name), tensor.dtype, _folded(shape), str(tensor.size)
        )
    return table


def _folded(text: str) -> Text:
    return Text(_on_one_line(text), overflow="fold")


def _on_one_line(text: str) -> str:
    return printable(text).replace("\n", r"\n")
