"""Read and pack the metadata file of a checkpoint, and the records of ranks."""

from shardproof._base import json
from shardproof._base.messages import joined, quoted
from shardproof.checkpoint.format._layout import metadata_name, record_name
from shardproof.checkpoint.format._metadata import (
    CheckpointMetadata,
    RankRecord,
    broken_by_shard,
    decode,
    encode,
    refuse,
)
from shardproof.checkpoint.format._sealed import refusal, unseal
from shardproof.checkpoint.storage._open_shard import open_file, read_at
from shardproof.checkpoint.storage._prefixes import prefixes_in
from shardproof.checkpoint.storage._storage import Location
from shardproof.checkpoint.storage._unfinished import unfinished_at, unfinished_of
from shardproof.errors import CheckpointError, CheckpointNotFoundError, ManifestError

__all__ = ["pack_metadata", "read_metadata", "read_record", "small_enough"]

_SHOWN = 3
_LONGEST_PATH = 4096


def read_metadata(location: Location, name: str | None = None) -> CheckpointMetadata:
    """Read the metadata of a checkpoint.

    Args:
        location: Where it is.
        name: Of the file, where it has another than the usual one.

    Raises:
        CheckpointNotFoundError: There is none; the text says what to type, where that is seen.
        CheckpointError: It can't be read, or breaks a law of the format.
    """
    try:
        data, path = _read(location, name or metadata_name(location.name))
    except CheckpointNotFoundError as error:
        if name is None and (tip := _advice(location)):
            raise CheckpointNotFoundError(f"{error.problem}; {tip}", path=error.path) from error
        raise
    try:
        return decode(data, path=path, prefix_name=location.name)
    except ManifestError as error:
        raise refusal(error) from error


def pack_metadata(location: Location, metadata: CheckpointMetadata) -> bytes:
    """Return the bytes of the metadata file of a checkpoint, if a reader takes so many."""
    return small_enough(encode(metadata), location.metadata)


def read_record(location: Location, rank: int) -> RankRecord:
    """Read what a rank recorded of its shard.

    Raises:
        CheckpointNotFoundError: It recorded nothing.
        CheckpointError: It can't be read, or breaks a law of the format.
    """
    data, path = _read(location, record_name(location.name, rank))
    try:
        record = unseal(data, RankRecord, path=path)
        found = record.shard.rank
        foreign = [] if found == rank else [f"rank: expected {rank}, found {found}"]
        refuse([*foreign, *broken_by_shard(record.shard, location.name)], path)
    except ManifestError as error:
        raise refusal(error) from error
    return record


def _read(location: Location, name: str) -> tuple[bytes, str]:
    with open_file(location.storage, location.beside(name)) as file:
        if file.size > json.MAX_BYTES:
            problem = f"expected at most {json.MAX_BYTES} bytes, found {file.size}"
            raise CheckpointError(problem, path=file.path)
        return read_at(file, 0, file.size), file.path


def small_enough(data: bytes, path: str) -> bytes:
    """Return the bytes of a JSON file that is to be written, if a reader takes so many.

    Raises:
        CheckpointError: They are too many.
    """
    if len(data) > json.MAX_BYTES:
        problem = (
            f"it would have {len(data)} bytes, and at most {json.MAX_BYTES} are read: "
            "save fewer and larger tensors"
        )
        raise CheckpointError(problem, path=path)
    return data


def _advice(location: Location) -> str:
    """Return what to do where there is no metadata file for a prefix; at best what to type."""
    if location.name.endswith(metadata_name("")):
        prefix = location.path.removesuffix(metadata_name(""))
        return f"expected a prefix, found the name of a metadata file: give {_shown(prefix)}"
    try:
        return _what_is_inside(location) or joined([*map(str, unfinished_at(location))])
    except OSError:  # that there is no such file was seen, all the same
        return ""


def _what_is_inside(location: Location) -> str:
    try:
        prefixes = prefixes_in(location.path, location.storage)
    except NotADirectoryError:
        return ""
    there = [_shown(found.path) for found in prefixes.committed]
    if there:
        more = f" (or another of {len(there)})" if len(there) > _SHOWN else ""
        shown = " or ".join(there[:_SHOWN])
        return f"expected a prefix, found a directory: give {shown}{more}"
    unfinished = [str(step) for step in unfinished_of(prefixes)]
    return f"it is a directory without a checkpoint: {unfinished[0]}" if unfinished else ""


def _shown(path: str) -> str:
    return quoted(path, _LONGEST_PATH)
