"""Inspect one shard: whether it is the one that the metadata names."""

import errno
from pathlib import Path
from typing import NamedTuple

from shardproof._base.work import go_on
from shardproof.checkpoint.format._layout import header_size
from shardproof.checkpoint.format._metadata import ShardEntry
from shardproof.checkpoint.load._shard_reader import checksum_found
from shardproof.checkpoint.storage._fsspec_storage import number_of
from shardproof.checkpoint.storage._local_storage import NotRegularFileError
from shardproof.checkpoint.storage._open_shard import (
    header_mismatch,
    implied_header,
    open_file,
    read_at,
)
from shardproof.checkpoint.storage._storage import Location, StoredFile
from shardproof.errors import CheckpointError, CheckpointNotFoundError
from shardproof.report import Finding, FindingKind, Level

__all__ = ["InspectedShard", "inspect", "is_unseen", "refuse_blind", "unread"]


class InspectedShard(NamedTuple):
    """A shard that was inspected.

    Attributes:
        path: Its absolute path or URL.
        finding: What is wrong, if anything is.
        is_unproven: Whether it states nothing by which the level could prove it.
    """

    path: str
    finding: Finding | None
    is_unproven: bool


def inspect(location: Location, shard: ShardEntry, level: Level) -> InspectedShard:
    """Inspect a shard at a level.

    Raises:
        Cancelled: The work was told to stop.
    """
    go_on()
    path = location.beside(shard.file)
    try:
        with open_file(location.storage, location.beside(shard.file)) as file:
            finding = _look_inside(file, shard, level)
    except CheckpointError as error:
        finding = unread(error, "a regular file")
    return InspectedShard(path, finding, level == "valid" and not shard.checksum)


def unread(error: CheckpointError, expected: str) -> Finding:
    """Return the finding that a file of a checkpoint can't be read."""
    path, cause = Path(error.path), error.__cause__
    if isinstance(error, CheckpointNotFoundError):
        return Finding(FindingKind.MISSING, path, expected, "nothing", errno.ENOENT)
    if isinstance(cause, NotRegularFileError):
        return Finding(FindingKind.NOT_REGULAR, path, expected, str(cause))
    if isinstance(cause, OSError):
        return Finding(FindingKind.UNREADABLE, path, expected, error.problem, number_of(cause))
    return Finding(FindingKind.STRUCTURE, path, expected, error.problem)


def refuse_blind(error: CheckpointError) -> None:
    """Raise an `OSError` if a file could not be looked at, since it may be whole.

    Raises:
        OSError: What the operating system said (EIO, ESTALE, EACCES, EMFILE).
    """
    finding = unread(error, "")
    if is_unseen(finding):
        raise OSError(finding.errno, f"could not look: {error.problem}", error.path) from error


def is_unseen(finding: Finding) -> bool:
    """Return whether a file could not be looked at, or access was denied: it may be whole."""
    return not finding.conclusive or finding.errno in {errno.EACCES, errno.EPERM}


def _look_inside(file: StoredFile, shard: ShardEntry, level: Level) -> Finding | None:
    path = Path(file.path)
    if not file.size:
        return Finding(FindingKind.EMPTY, path, f"{shard.file_size} bytes", "0 bytes")
    if level == "present":
        return None
    finding = _incomplete(file, path, shard)
    return finding or (_invalid(file, path, shard) if level == "valid" else None)


def _incomplete(file: StoredFile, path: Path, shard: ShardEntry) -> Finding | None:
    if file.size != shard.file_size:
        expected, found = f"{shard.file_size} bytes", f"{file.size} bytes"
        return Finding(FindingKind.SIZE, path, expected, found)
    begin = read_at(file, 0, header_size(shard.checksum))
    mismatch = header_mismatch(implied_header(shard), begin)
    return Finding(FindingKind.STRUCTURE, path, *mismatch) if mismatch else None


def _invalid(file: StoredFile, path: Path, shard: ShardEntry) -> Finding | None:
    found = checksum_found(file, shard) if shard.checksum else ""
    if found == shard.checksum:
        return None
    return Finding(FindingKind.DIGEST, path, shard.checksum, found)
