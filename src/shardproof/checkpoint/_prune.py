"""Old checkpoints go, and never the last whole one."""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence

from shardproof._arguments import checked
from shardproof._messages import told
from shardproof.checkpoint._before_saving import refuse_number
from shardproof.checkpoint._layout import (
    header_size,
    metadata_name,
    note_name,
    parse_header,
    pruned_name,
)
from shardproof.checkpoint._metadata import CheckpointMetadata, ShardEntry
from shardproof.checkpoint._metadata_file import read_metadata
from shardproof.checkpoint._needless import sweep_needless
from shardproof.checkpoint._opened import open_file, read_at
from shardproof.checkpoint._prefixes import prefixes_in
from shardproof.checkpoint._steps import Candidate, is_whole, newest_first
from shardproof.checkpoint._storage import CheckpointStorage, Place
from shardproof.errors import CheckpointError, CheckpointNotFoundError
from shardproof.report import Level

__all__ = ["prune"]

logger = logging.getLogger("shardproof.checkpoint")


@checked
def prune(
    directory: str | os.PathLike[str],
    keep: int = 3,
    *,
    storage: CheckpointStorage | None = None,
    level: Level = "valid",
) -> list[str]:
    """Remove the checkpoints of old steps; return the prefixes that were removed.

    The newest ``keep`` steps that have a whole checkpoint stay, and all that is newer. What is
    older goes, whole or torn. Shards without metadata stay: somebody may be saving them. Without a
    whole checkpoint nothing goes.

    A removal that is interrupted leaves the checkpoint whole, or without its metadata file, and
    the next call finishes it. Only files that a metadata file names are removed, unless a save that
    has begun since has put another in their place; and notes of ranks whose shards are those of a
    checkpoint, which a kill of its save has left.

    Args:
        directory: Where checkpoints are: in it, or in its direct subdirectories.
        keep: How many steps stay.
        storage: By default a directory, or for an address with ``://`` what fsspec opens.
        level: How hard to look before a checkpoint counts as whole.

    Raises:
        OSError: Something can't be listed, looked at or removed.
        TypeError: An argument of the wrong type.
        ValueError: ``keep`` below 1.
    """
    refuse_number("keep", keep, 1, 2**63 - 1)
    prefixes = prefixes_in(directory, storage)
    removed = [place for place in prefixes.half_removed if _finish(place)]
    for place in _old(newest_first(prefixes.committed), keep, level):
        _remove(place)
        removed.append(place)
    for found, where in {(place.storage, place.directory) for place in prefixes.committed}:
        sweep_needless(found, where)
    return [place.storage.address(place.path) for place in removed]


def _old(candidates: Sequence[Candidate], keep: int, level: Level) -> Iterator[Place]:
    kept: set[int] = set()
    for candidate in candidates:
        step = candidate.metadata.step
        if step in kept:
            continue
        if len(kept) == keep:
            yield candidate.place
        elif is_whole(candidate, level):
            kept.add(step)


def _remove(place: Place) -> None:
    """From the first line on it is no checkpoint, and what is left of it can be recognised."""
    with contextlib.suppress(FileNotFoundError):  # another process did it
        place.storage.move(
            place.beside(metadata_name(place.name)), place.beside(pruned_name(place.name))
        )
    _finish(place)


def _finish(place: Place) -> bool:
    """Remove what a checkpoint named, and last the file that says so; say whether that was done."""
    remains = place.beside(pruned_name(place.name))
    try:
        metadata = read_metadata(place, pruned_name(place.name))
    except CheckpointNotFoundError:
        return False
    except CheckpointError as error:
        logger.warning("What is left of a checkpoint stays: %s", told(error))
        return False
    if not _is_saved_again(place):
        _remove_shards(place, metadata)
    place.storage.remove(remains)
    return True


def _is_saved_again(place: Place) -> bool:
    names = {name for name, _ in place.storage.entries(place.directory)}
    return metadata_name(place.name) in names


def _remove_shards(place: Place, metadata: CheckpointMetadata) -> None:
    for shard in metadata.shards:
        if not _is_of_another(place, shard):
            place.storage.remove(place.beside(shard.file))
            place.storage.remove(place.beside(note_name(place.name, shard.rank)))


def _is_of_another(place: Place, shard: ShardEntry) -> bool:
    """Whether a shard that is there is one of a save that has begun since."""
    try:
        with open_file(place.storage, place.beside(shard.file)) as file:
            found = parse_header(read_at(file, 0, header_size(shard.checksum)))
    except (CheckpointError, ValueError):  # torn, or gone: it is no new one, which would be whole
        return False
    return found.rank == shard.rank and found.checksum != shard.checksum
