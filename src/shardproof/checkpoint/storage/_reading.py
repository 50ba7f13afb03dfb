"""Open the files of a checkpoint: shards, metadata and records, none of which is believed."""

import contextlib
from collections.abc import Iterator

from shardproof._base import json
from shardproof._base.messages import joined, quoted, told
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import CheckpointMetadata, RankRecord, ShardEntry, ShardHeader
from shardproof.checkpoint.storage._location import (
    Location,
    prefixes_in,
    unfinished_at,
    unfinished_of,
)
from shardproof.checkpoint.storage._storage import (
    CheckpointStorage,
    NotRegularFileError,
    StoredFile,
)
from shardproof.errors import CheckpointError, CheckpointNotFoundError

_SHOWN = 3
_LONGEST_PATH = 4096


def read_metadata(location: Location, copy: str | None = None) -> CheckpointMetadata:
    """Read the metadata of a checkpoint, or a copy of them at another path."""
    try:
        data, path = _read(location, copy or location.metadata)
    except CheckpointNotFoundError as error:
        if copy is None and (tip := _advice(location)):
            raise CheckpointNotFoundError(f"{error.problem}; {tip}", path=error.path) from error
        raise
    return _format.decode(data, path=path, prefix_name=location.name)


def read_record(location: Location, rank: int) -> RankRecord:
    """Read what a rank recorded of its shard; raise as `read_metadata`."""
    data, path = _read(location, location.record(rank))
    return _format.decode_record(data, rank, path=path, prefix_name=location.name)


def _read(location: Location, path: str) -> tuple[bytes, str]:
    with open_file(location.storage, path) as file:
        _format.refuse_large(file.size, path=file.path)
        return read_at(file, 0, file.size), file.path


def small_enough(data: bytes, path: str) -> bytes:
    """Return the bytes of a JSON file that is to be written, unless no reader takes so many."""
    if len(data) > json.MAX_BYTES:
        problem = (
            f"it would have {len(data)} bytes, and at most {json.MAX_BYTES} are read: "
            "save fewer and larger tensors"
        )
        raise CheckpointError(problem, path=path)
    return data


def _advice(location: Location) -> str:
    """Return what to do where there is no metadata file for a prefix; at best what to type."""
    if location.name.endswith(_format.METADATA_END):
        given = quoted(location.path.removesuffix(_format.METADATA_END), _LONGEST_PATH)
        return f"expected a prefix, found the name of a metadata file: give {given}"
    try:
        with contextlib.suppress(NotADirectoryError):  # a prefix may be the name of a file, too
            prefixes = prefixes_in(location.path, location.storage)
            if there := [quoted(found.path, _LONGEST_PATH) for found in prefixes.committed]:
                more = f" (or another of {len(there)})" if len(there) > _SHOWN else ""
                shown = " or ".join(there[:_SHOWN])
                return f"expected a prefix, found a directory: give {shown}{more}"
            if step := next(unfinished_of(prefixes), None):
                return f"it is a directory without a checkpoint: {step}"
        return joined([*map(str, unfinished_at(location))])
    except OSError:  # that there is no such file was seen, all the same
        return ""


@contextlib.contextmanager
def open_file(storage: CheckpointStorage, path: str) -> Iterator[StoredFile]:
    """Open a file of a checkpoint, and close it in the end; refuse one that can't be opened."""
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
    """Open a shard as `open_file` does, if its size and header are those the metadata implies."""
    with open_file(location.storage, location.beside(entry.file)) as file:
        refuse_other_file(file, entry)
        yield file


def refuse_other_file(file: StoredFile, entry: ShardEntry) -> None:
    """Raise `CheckpointError` unless size and header are those that the metadata implies."""
    if file.size != entry.file_size:
        problem = f"expected {entry.file_size} bytes, found {file.size}; restore it"
        raise CheckpointError(problem, path=file.path)
    if mismatch := other_header(file, entry):
        expected, found = mismatch
        problem = f"expected {expected} in its header, found {found}; restore it"
        raise CheckpointError(problem, path=file.path)


def read_at(file: StoredFile, offset: int, n_bytes: int) -> bytes:
    """Read a number of bytes from an offset on, or fewer where the file ends."""
    buffer = memoryview(bytearray(min(n_bytes, max(0, file.size - offset))))
    at = 0
    while at < len(buffer):
        at += read_into(file, buffer[at:], offset + at)
    return bytes(buffer)


def read_into(file: StoredFile, view: memoryview, offset: int) -> int:
    """Read at least one byte into a view; a file that ends there is a `CheckpointError`."""
    try:
        n = file.read_into(view, offset)
    except OSError as error:
        problem = f"it can't be read at {offset}: {told(error)}"
        raise CheckpointError(problem, path=file.path) from error
    if not n:
        problem = f"it became shorter while it was read: it ends before byte {offset}"
        raise CheckpointError(problem, path=file.path)
    return n


def other_header(file: StoredFile, entry: ShardEntry) -> tuple[str, str] | None:
    """Return the expected and the found header of an open shard in words, where they differ."""
    return ShardHeader.of(entry).mismatch(read_at(file, 0, _format.header_size(entry.checksum)))
