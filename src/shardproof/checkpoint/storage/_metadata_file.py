"""The file that makes a checkpoint one, and the notes of ranks from which it is made."""

from shardproof._base import json
from shardproof.checkpoint.format._layout import metadata_name, note_name
from shardproof.checkpoint.format._metadata import (
    CheckpointMetadata,
    ShardEntry,
    broken_by_shard,
    decode,
    encode,
    refuse,
)
from shardproof.checkpoint.format._rank_record import Note
from shardproof.checkpoint.format._refusal import refusal
from shardproof.checkpoint.format._sealed import unseal
from shardproof.checkpoint.storage._advice import advice
from shardproof.checkpoint.storage._open_shard import open_file, read_at
from shardproof.checkpoint.storage._storage import Place
from shardproof.errors import CheckpointError, CheckpointNotFoundError, ManifestError

__all__ = ["pack_metadata", "read_metadata", "read_note", "small_enough"]


def read_metadata(place: Place, name: str | None = None) -> CheckpointMetadata:
    """Return what the metadata of a checkpoint says.

    Args:
        place: Where it is.
        name: Of the file, where it has another than the usual one.

    Raises:
        CheckpointNotFoundError: There is none; the text says what to type, where that is seen.
        CheckpointError: It can't be read, or breaks a law of the format.
    """
    try:
        data, address = _read(place, name or metadata_name(place.name))
    except CheckpointNotFoundError as error:
        if name is None and (tip := advice(place)):
            raise CheckpointNotFoundError(f"{error.problem}; {tip}", path=error.path) from error
        raise
    try:
        return decode(data, path=address, prefix_name=place.name)
    except ManifestError as error:
        raise refusal(error) from error


def pack_metadata(place: Place, metadata: CheckpointMetadata) -> bytes:
    """Return the bytes of the metadata file of a checkpoint, if a reader takes so many."""
    return small_enough(encode(metadata), place.address(metadata_name(place.name)))


def read_note(place: Place, rank: int) -> Note:
    """Return what a rank noted of its shard.

    Raises:
        CheckpointNotFoundError: It noted nothing.
        CheckpointError: It can't be read, or breaks a law of the format.
    """
    data, address = _read(place, note_name(place.name, rank))
    try:
        note = unseal(data, Note, path=address)
        refuse(_broken_by_note(note.shard, place, rank), address)
    except ManifestError as error:
        raise refusal(error) from error
    return note


def _broken_by_note(shard: ShardEntry, place: Place, rank: int) -> list[str]:
    foreign = [] if shard.rank == rank else [f"rank: expected {rank}, found {shard.rank}"]
    return [*foreign, *broken_by_shard(shard, place.name)]


def _read(place: Place, name: str) -> tuple[bytes, str]:
    with open_file(place.storage, place.beside(name)) as file:
        if file.size > json.MAX_BYTES:
            problem = f"expected at most {json.MAX_BYTES} bytes, found {file.size}"
            raise CheckpointError(problem, path=file.path)
        return read_at(file, 0, file.size), file.path


def small_enough(data: bytes, address: str) -> bytes:
    """Return the bytes of a JSON file that is to be written, if a reader takes so many.

    Raises:
        CheckpointError: They are too many.
    """
    if len(data) > json.MAX_BYTES:
        problem = (
            f"it would have {len(data)} bytes, and at most {json.MAX_BYTES} are read: "
            "save fewer and larger tensors"
        )
        raise CheckpointError(problem, path=address)
    return data
