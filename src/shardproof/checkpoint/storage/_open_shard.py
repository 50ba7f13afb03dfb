"""Open a shard, whose size and header are compared with the metadata before it is read."""

import contextlib
from collections.abc import Iterator

from shardproof._base.messages import quoted, told
from shardproof.checkpoint.format._layout import ShardHeader, header_size, pack_header, parse_header
from shardproof.checkpoint.format._metadata import ShardEntry
from shardproof.checkpoint.storage._local_storage import NotRegularFileError
from shardproof.checkpoint.storage._storage import CheckpointStorage, Location, StoredFile
from shardproof.errors import CheckpointError, CheckpointNotFoundError

__all__ = [
    "header_mismatch",
    "implied_header",
    "open_file",
    "open_shard",
    "read_at",
    "read_into",
    "refuse_other_file",
]


@contextlib.contextmanager
def open_file(storage: CheckpointStorage, path: str) -> Iterator[StoredFile]:
    """Open a file of a checkpoint, and close it in the end.

    Raises:
        CheckpointNotFoundError: It is not there.
        CheckpointError: It can't be opened, or is no regular file.
    """
    try:
        file = storage.open(path)
    except FileNotFoundError as error:
        raise CheckpointNotFoundError("there is no such file", path=path) from error
    except NotRegularFileError as error:
        problem = f"expected a regular file, found {told(error)}; restore it"
        raise CheckpointError(problem, path=path) from error
    except OSError as error:
        raise CheckpointError(f"it can't be opened: {told(error)}", path=path) from error
    with contextlib.closing(file):
        yield file


@contextlib.contextmanager
def open_shard(location: Location, entry: ShardEntry) -> Iterator[StoredFile]:
    """Open a shard whose size and header are those that the metadata implies.

    Raises:
        CheckpointNotFoundError: It is not there.
        CheckpointError: It can't be opened, or they are others.
    """
    with open_file(location.storage, location.beside(entry.file)) as file:
        refuse_other_file(file, entry)
        yield file


def refuse_other_file(file: StoredFile, entry: ShardEntry) -> None:
    """Raise `CheckpointError` unless size and header are those that the metadata implies."""
    if file.size != entry.file_size:
        problem = f"expected {entry.file_size} bytes, found {file.size}; restore it"
        raise CheckpointError(problem, path=file.path)
    header = implied_header(entry)
    if mismatch := header_mismatch(header, read_at(file, 0, header_size(header.checksum))):
        expected, found = mismatch
        problem = f"expected {expected} in its header, found {found}; restore it"
        raise CheckpointError(problem, path=file.path)


def read_at(file: StoredFile, offset: int, n_bytes: int) -> bytes:
    """Read a number of bytes from an offset on, or fewer where the file ends."""
    buffer = memoryview(bytearray(min(n_bytes, max(0, file.size - offset))))
    at = 0
    while at < len(buffer):
        n = read_into(file, buffer[at:], offset + at)
        at += n
    return bytes(buffer)


def read_into(file: StoredFile, view: memoryview, offset: int) -> int:
    """Read at least one byte into a view.

    Raises:
        CheckpointError: It can't be read, or ends there.
    """
    try:
        n = file.read_into(view, offset)
    except OSError as error:
        raise CheckpointError(
            f"it can't be read at {offset}: {told(error)}", path=file.path
        ) from error
    if not n:
        problem = f"it became shorter while it was read: it ends before byte {offset}"
        raise CheckpointError(problem, path=file.path)
    return n


def implied_header(entry: ShardEntry) -> ShardHeader:
    """Return the header that a shard has, if it is the one that the metadata names."""
    length = entry.file_size - header_size(entry.checksum)
    return ShardHeader(entry.rank, entry.checksum, len(entry.tensors), length)


def header_mismatch(expected: ShardHeader, begin: bytes) -> tuple[str, str] | None:
    """Return the expected and the found header of a shard in words, where they differ."""
    if begin == pack_header(expected):
        return None
    try:
        found = parse_header(begin)
    except ValueError as error:
        return "what the metadata implies", f"another: {told(error)}"
    if found.rank != expected.rank:
        return f"rank {expected.rank}", f"rank {found.rank}: files were swapped or copied"
    if found.checksum != expected.checksum:
        stated = quoted(found.checksum)
        return f"the checksum {expected.checksum}", f"{stated}: another step's shard, or damage"
    return str(expected), str(found)
