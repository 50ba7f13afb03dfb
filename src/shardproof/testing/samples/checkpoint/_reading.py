"""The kit's own reader of checkpoints: slow, all in memory, and by the standard library alone."""

import hashlib
import os
import stat
import struct
from pathlib import Path
from typing import Any

from shardproof.testing.samples._oracle import refuse_level
from shardproof.testing.samples.checkpoint._laws import demand, lawful_metadata

__all__ = ["is_whole_checkpoint", "read_checkpoint"]


def is_whole_checkpoint(prefix: str | os.PathLike[str], *, level: str = "valid") -> bool:
    """Return whether a checkpoint is whole, as it lies on disk.

    It knows the format (docs/checkpoint-format.md) and not what was meant to be written: use it on
    what your own code wrote, copied or damaged.

    Args:
        prefix: With which the paths of its files begin.
        level: ``"present"``, ``"complete"`` or ``"valid"``; see `expected_problems`.

    Raises:
        NotImplementedError: A checksum of BLAKE3, which the standard library can't compute.
        ValueError: Another level.

    Example:
        >>> from shardproof.testing import Layout, shards_dir
        >>> with shards_dir(Layout(format="checkpoint", truncated=[1])) as prefix:
        ...     is_whole_checkpoint(prefix, level="present"), is_whole_checkpoint(prefix)
        (True, False)
    """
    refuse_level(level)
    try:
        _read(Path(prefix), level)
    except (OSError, ValueError):
        return False
    return True


def read_checkpoint(prefix: str | os.PathLike[str]) -> list[dict[str, bytes]]:
    """Return the bytes of all tensors by name, rank by rank, once everything is proven.

    Args:
        prefix: With which the paths of its files begin.

    Raises:
        NotImplementedError: A checksum of BLAKE3, which the standard library can't compute.
        OSError: A file is not there, or can't be read.
        ValueError: The checkpoint is not whole, and why.

    Example:
        >>> from shardproof.testing import Layout, shards_dir
        >>> with shards_dir(Layout(2, format="checkpoint")) as prefix:
        ...     first, second = read_checkpoint(prefix)
        >>> len(second["layers.1.weight"])
        48
    """
    document, shards = _read(Path(prefix), "valid")
    return [
        {
            tensor["name"]: shard[tensor["offset"] : tensor["offset"] + tensor["size"]]
            for tensor in entry["tensors"]
        }
        for entry, shard in zip(document["shards"], shards, strict=True)
    ]


def _read(prefix: Path, level: str) -> tuple[dict[str, Any], list[bytes]]:
    metadata = prefix.with_name(f"{prefix.name}.metadata.json")
    document = lawful_metadata(_content(metadata), prefix.name)
    return document, [_shard(prefix.parent, entry, level) for entry in document["shards"]]


def _content(path: Path) -> bytes:
    """Return the bytes of a regular file; to open a named pipe may take for ever."""
    real, directory = _real(path), _real(path.parent)
    demand(os.path.dirname(real) == directory, f"a file in {directory}", real)
    demand(stat.S_ISREG(os.stat(real).st_mode), "a regular file", real)
    return Path(real).read_bytes()


def _real(path: Path) -> str:
    return os.path.realpath(path, strict=True)  # noqa: TID251 - it raises


def _shard(directory: Path, entry: dict[str, Any], level: str) -> bytes:
    shard = _content(directory / entry["file"])
    demand(len(shard) > 0, "a shard", "0 bytes")
    if level != "present":
        _refuse_header(shard, entry)
    if level == "valid":
        _refuse_data(shard, entry)
    return shard


def _refuse_header(shard: bytes, entry: dict[str, Any]) -> None:
    demand(len(shard) == entry["file_size"], f"{entry['file_size']} bytes", len(shard))
    checksum, n_tensors = entry["checksum"].encode(), len(entry["tensors"])
    n_data = entry["file_size"] - 24 - len(checksum)
    form = f"<Iii{len(checksum)}siq"
    header = struct.pack(
        form, 0x53484152, entry["rank"], len(checksum), checksum, n_tensors, n_data
    )
    demand(shard.startswith(header), f"header {header!r}", shard[: len(header)])


def _refuse_data(shard: bytes, entry: dict[str, Any]) -> None:
    kind, _, digits = entry["checksum"].rpartition(":")
    data = shard[24 + len(entry["checksum"]) :]
    demand(_digest(kind or "sha256", data) == digits, f"checksum {digits!r}", "another")
    for tensor in entry["tensors"]:
        kind, _, digits = (tensor["digest"] or "").partition(":")
        if kind == "sha256":  # of the others, none is in the standard library
            content = shard[tensor["offset"] : tensor["offset"] + tensor["size"]]
            demand(_digest(kind, content) == digits, f"digest {digits}", tensor["name"])


def _digest(kind: str, data: bytes) -> str:
    if kind == "sha256":
        return hashlib.sha256(data).hexdigest()
    if kind == "sha256-tree":
        leaves = [data[start : start + 2**20] for start in range(0, len(data), 2**20)]
        return hashlib.sha256(
            b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)
        ).hexdigest()
    raise NotImplementedError(f"a checksum of {kind} is not computed here: save with sha256")
