"""One look at one shard: whether it is the one that the metadata names."""

import errno
import threading
from pathlib import Path
from typing import NamedTuple

from shardproof.checkpoint.format._layout import header_size
from shardproof.checkpoint.format._metadata import ShardEntry
from shardproof.checkpoint.format._stop import go_on
from shardproof.checkpoint.load._shard_reader import checksum_found
from shardproof.checkpoint.storage._fsspec_storage import number_of
from shardproof.checkpoint.storage._local_storage import NotRegularFileError
from shardproof.checkpoint.storage._open_shard import (
    header_mismatch,
    implied_header,
    open_file,
    read_at,
)
from shardproof.checkpoint.storage._storage import Place, StoredFile
from shardproof.errors import CheckpointError, CheckpointNotFoundError
from shardproof.report import Finding, FindingKind, Level

__all__ = ["Look", "is_unseen", "look_at", "refuse_blind", "unread"]


class Look(NamedTuple):
    """What was seen of a shard.

    Attributes:
        path: Its absolute path or address.
        finding: What is wrong, if anything is.
        is_unproven: Whether it states nothing by which the level could prove it.
    """

    path: str
    finding: Finding | None
    is_unproven: bool


def look_at(
    place: Place, shard: ShardEntry, level: Level, stop: threading.Event | None = None
) -> Look:
    """Return what is seen of a shard at a level; raise `StoppedError` once ``stop`` is set."""
    go_on(stop)
    path = place.address(shard.file)
    try:
        with open_file(place.storage, place.beside(shard.file)) as file:
            finding = _look_inside(file, shard, level, stop)
    except CheckpointError as error:
        finding = unread(error, "a regular file")
    return Look(path, finding, level == "valid" and not shard.checksum)


def unread(error: CheckpointError, expected: str) -> Finding:
    """Return what it means that a file of a checkpoint can't be read."""
    path, cause = Path(error.path), error.__cause__
    if isinstance(error, CheckpointNotFoundError):
        return Finding(FindingKind.MISSING, path, expected, "nothing", errno.ENOENT)
    if isinstance(cause, NotRegularFileError):
        return Finding(FindingKind.NOT_REGULAR, path, expected, str(cause))
    if isinstance(cause, OSError):
        return Finding(FindingKind.UNREADABLE, path, expected, error.problem, number_of(cause))
    return Finding(FindingKind.STRUCTURE, path, expected, error.problem)


def refuse_blind(error: CheckpointError) -> None:
    """Raise where nobody could look at a file, which may be whole.

    Raises:
        OSError: What the operating system said (EIO, ESTALE, EACCES, EMFILE).
    """
    finding = unread(error, "")
    if is_unseen(finding):
        raise OSError(finding.errno, f"could not look: {error.problem}", error.path) from error


def is_unseen(finding: Finding) -> bool:
    """Whether nobody could look at a file, be it that access is denied: it may be whole."""
    return not finding.looked or finding.errno in {errno.EACCES, errno.EPERM}


def _look_inside(
    file: StoredFile, shard: ShardEntry, level: Level, stop: threading.Event | None
) -> Finding | None:
    path = Path(file.path)
    if not file.size:
        return Finding(FindingKind.EMPTY, path, f"{shard.file_size} bytes", "0 bytes")
    if level == "present":
        return None
    finding = _incomplete(file, path, shard)
    return finding or (_invalid(file, path, shard, stop) if level == "valid" else None)


def _incomplete(file: StoredFile, path: Path, shard: ShardEntry) -> Finding | None:
    if file.size != shard.file_size:
        expected, found = f"{shard.file_size} bytes", f"{file.size} bytes"
        return Finding(FindingKind.SIZE, path, expected, found)
    begin = read_at(file, 0, header_size(shard.checksum))
    mismatch = header_mismatch(implied_header(shard), begin)
    return Finding(FindingKind.STRUCTURE, path, *mismatch) if mismatch else None


def _invalid(
    file: StoredFile, path: Path, shard: ShardEntry, stop: threading.Event | None
) -> Finding | None:
    found = checksum_found(file, shard, stop) if shard.checksum else ""
    if found == shard.checksum:
        return None
    return Finding(FindingKind.DIGEST, path, shard.checksum, found)
