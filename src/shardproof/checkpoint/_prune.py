"""Remove old checkpoints, and never the last whole one; docs/checkpoint-format.md has the steps."""

import contextlib
import logging
import os

from shardproof._base.arguments import checked, count
from shardproof._base.messages import told
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import CheckpointMetadata, ShardEntry, ShardHeader
from shardproof.checkpoint.read._directories import is_whole, newest_first
from shardproof.checkpoint.read._verifier import refuse_blind
from shardproof.checkpoint.save._commit import sweep_leftovers
from shardproof.checkpoint.storage._location import Location, prefixes_in, storage_of
from shardproof.checkpoint.storage._reading import open_file, read_at, read_metadata
from shardproof.checkpoint.storage._storage import CheckpointStorage
from shardproof.errors import CheckpointError, CheckpointNotFoundError
from shardproof.report import Level

logger = logging.getLogger("shardproof.checkpoint")


@checked
def prune(
    path: str | os.PathLike[str],
    *,
    keep: int = 3,
    storage: CheckpointStorage | None = None,
    level: Level = "valid",
) -> list[str]:
    """Remove the checkpoints of old steps; return the prefixes that were removed.

    The newest ``keep`` steps that have a whole checkpoint stay, and all that is newer. What is
    older goes, whole or torn. Shards without metadata stay: a save may still run. Without a whole
    checkpoint nothing goes.

    A removal that is interrupted leaves the checkpoint whole, or without its metadata file, and
    the next call finishes it; the log reports one that another user began and that this one may
    not finish. Only files that a metadata file names are removed, unless a save that has begun
    since has put another in their place; and what a kill of a save has left beside a checkpoint.
    Links to directories are not followed.

    Args:
        path: A directory: checkpoints are in it, or in its direct subdirectories.
        keep: How many steps stay.
        storage: By default a directory, or for a URL with ``://`` what fsspec opens.
        level: How thorough the check is before a checkpoint counts as whole.

    Raises:
        OSError: Something can't be listed, checked or removed; the next call finishes it.
        TypeError: An argument of the wrong type.
        ValueError: ``keep`` below 1.

    Example:
        >>> from shardproof.checkpoint import prune
        >>> prune(output_dir, keep=3)
        []
    """
    count("keep", keep, 1)
    found = storage_of(path, storage)
    prefixes = prefixes_in(path, found)
    # First, while there are metadata still that tell what is not needed.
    for where in {at.directory: None for at in (*prefixes.committed, *prefixes.half_removed)}:
        sweep_leftovers(found, where)
    removed = []
    for location in prefixes.half_removed:
        try:
            removed += [location] * _finish(location)
        except PermissionError as error:
            logger.warning("Passing over a removal that another user began: %s", told(error))
    kept: set[int] = set()  # steps, of each of which there may be several checkpoints
    for location, metadata in newest_first(prefixes.committed):
        if metadata.step in kept:
            continue
        if len(kept) < keep:
            if is_whole(location, metadata.step, level):
                kept.add(metadata.step)
        elif _remove(location, metadata):
            removed.append(location)
    return [location.path for location in removed]


def _remove(location: Location, metadata: CheckpointMetadata) -> bool:
    """Remove a checkpoint, unless another one is in its place; say whether it was removed."""
    storage, data = location.storage, _format.seal(metadata)
    try:
        with open_file(storage, location.metadata) as file:
            if read_at(file, 0, file.size) != data:
                return False
            storage.write(location.pruned, data, sync=True)
            if storage.look_up(location.metadata) is None:
                return False  # another one gave it up before the copy was there
            storage.remove(location.metadata, only=file, sync=True)
    except CheckpointError as error:
        refuse_blind(error)
        return False  # another removal was faster, or another save writes it
    return _finish(location)


def _finish(location: Location) -> bool:
    """Remove what is left of a checkpoint that is being removed; say whether that was any."""
    try:
        metadata = read_metadata(location, location.pruned)
    except CheckpointNotFoundError:
        return False
    except CheckpointError as error:
        refuse_blind(error)
        logger.warning("What is left of a checkpoint stays: %s", told(error))
        return False
    is_removed = not _is_saved_again(location)
    for shard in metadata.shards:
        _remove_shard(location, shard)
    location.storage.remove(location.pruned)
    return is_removed


def _is_saved_again(location: Location) -> bool:
    """Whether a save has begun since, which removes the copy first, or has ended."""
    look_up = location.storage.look_up
    return look_up(location.pruned) is None or look_up(location.metadata) is not None


def _remove_shard(location: Location, shard: ShardEntry) -> None:
    """Remove a shard and its record, unless a save that has begun since put another one there."""
    storage, path = location.storage, location.beside(shard.file)
    try:
        with open_file(storage, path) as file:
            begin = read_at(file, 0, _format.header_size(shard.checksum))
            with contextlib.suppress(ValueError):  # torn: it is no new one, which would be whole
                found = ShardHeader.parse(begin)
                if found.rank == shard.rank and found.checksum != shard.checksum:
                    return
            if _is_saved_again(location):
                return
            storage.remove(path, only=file)
    except CheckpointNotFoundError:
        pass
    except CheckpointError as error:
        refuse_blind(error)
        return  # no regular file: not one of ours
    storage.remove(location.record(shard.rank))
