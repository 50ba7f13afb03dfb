"""Remove a checkpoint while others save: what a save has put in its place is never touched.

A removal makes a folder, sees that nobody has a seal, and then that the checkpoint is still the one
that is to go. From then on a file goes by being moved into that folder, which fails where there is
none: the metadata first, which say from there what is to go, then shards and records. A save takes
such folders away before a shard gets its name, and before shards are looked at for a seal: from
then on nobody moves anything. What a kill left in a folder, the next removal finishes.
"""

import contextlib
import logging
from collections.abc import Callable

from shardproof._base.messages import told
from shardproof.checkpoint.format._layout import (
    header_size,
    metadata_name,
    new_removal_name,
    parse_header,
    pruned_name,
    record_name,
    seal_prefix,
)
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry
from shardproof.checkpoint.save._leftovers import remove_folder, take_away
from shardproof.checkpoint.storage._metadata_file import read_metadata
from shardproof.checkpoint.storage._open_shard import open_file, read_at
from shardproof.checkpoint.storage._storage import CheckpointStorage, Exclusive, Location
from shardproof.checkpoint.verify._inspect import refuse_blind
from shardproof.errors import CheckpointError, CheckpointNotFoundError

__all__ = ["finish", "finish_given_up", "remove"]

logger = logging.getLogger("shardproof.checkpoint")


def remove(location: Location, metadata: CheckpointMetadata) -> bool:
    """Remove a checkpoint, unless another one is in its place; say whether it was removed.

    Raises:
        OSError: Something could not be looked at or removed; the next call finishes it.
    """
    if not _is_still(location, metadata):
        return False
    if isinstance(location.storage, Exclusive):

        def may_go() -> bool:
            is_sealed = any(
                name.startswith(seal_prefix(location.name)) for name in _names(location)
            )
            return not is_sealed and _is_still(location, metadata)

        return _move_out(location, metadata_name(location.name), may_go)
    location.storage.move(location.metadata, location.beside(pruned_name(location.name)))
    return finish_given_up(location)


def finish_given_up(location: Location) -> bool:
    """Remove a checkpoint whose metadata file was renamed; say whether it was removed.

    Raises:
        OSError: As of `remove`.
    """
    remains = pruned_name(location.name)
    metadata = _what_was(location, remains)
    if metadata is None:
        return False
    if _is_saved_again(location):
        location.storage.remove(location.beside(remains))
        return False
    if isinstance(location.storage, Exclusive):
        return _move_out(location, remains, lambda: _is_given_up(location))
    _remove_shards(location, metadata)
    location.storage.remove(location.beside(remains))
    return True


def finish(folder: Location) -> Location | None:
    """Remove what the metadata in a folder name, and the folder; return what was removed.

    Of a file that was in one, only that goes. Where metadata are torn, nobody knows what they
    named: that stays, and is no half of a removal any more.

    Raises:
        OSError: As of `remove`.
    """
    storage, end, location = folder.storage, pruned_name(""), None
    if folder.path.endswith(".tmp"):
        storage.remove(folder.path)
        return None
    for name in [name for name, _ in storage.list(folder.path) if name.endswith(end)]:
        metadata = _what_was(Location(storage, f"{folder.path}/{name.removesuffix(end)}"), name)
        if not isinstance(storage, Exclusive):
            return None
        if metadata is not None:
            location = Location(storage, folder.beside(name.removesuffix(end)))
            _move_shards(location, metadata, folder.path)
    try:
        remove_folder(storage, folder.path)
    except CheckpointError as error:
        logger.warning("What is left of a removal stays: %s", told(error))
    return location


def _is_still(location: Location, metadata: CheckpointMetadata) -> bool:
    try:
        return read_metadata(location, metadata_name(location.name)) == metadata
    except CheckpointError as error:
        refuse_blind(error)
        return False


def _is_saved_again(location: Location) -> bool:
    return metadata_name(location.name) in _names(location)


def _is_given_up(location: Location) -> bool:
    """Return whether no save has begun anew, once seals that kills left are removed."""
    if pruned_name(location.name) not in _names(location):
        return False
    take_away(location, seal_prefix(location.name))
    return not _is_saved_again(location)


def _names(location: Location) -> set[str]:
    return {name for name, _ in location.storage.list(location.directory)}


def _what_was(location: Location, name: str) -> CheckpointMetadata | None:
    """Return the metadata of a checkpoint that is being removed; None if they can't be read."""
    try:
        return read_metadata(location, name)
    except CheckpointNotFoundError:
        return None
    except CheckpointError as error:
        refuse_blind(error)
        logger.warning("What is left of a checkpoint stays: %s", told(error))
        return None


def _move_out(location: Location, name: str, may_go: Callable[[], bool]) -> bool:
    """Move the metadata into a new folder, if they may go; then the shards that they name."""
    storage, is_moved = location.storage, False
    folder = location.beside(new_removal_name(location.name))
    try:
        storage.make_directories(folder)
    except FileNotFoundError:  # its directory was moved away
        return False
    try:
        if may_go():
            is_moved = _move(
                storage, location.beside(name), f"{folder}/{pruned_name(location.name)}"
            )
    except BaseException:
        _take_back(storage, folder)
        raise
    finish(Location(storage, folder))
    return is_moved


def _take_back(storage: CheckpointStorage, folder: str) -> None:
    """Remove a folder into which nothing was moved: it stops others, who may not remove it."""
    with contextlib.suppress(OSError):
        if isinstance(storage, Exclusive):
            storage.remove_directory(folder)


def _move_shards(location: Location, metadata: CheckpointMetadata, folder: str) -> None:
    storage = location.storage
    if isinstance(storage, Exclusive):
        storage.sync_directory(
            location.directory
        )  # no power cut brings metadata without shards back
    there = {name for name, is_directory in storage.list(location.directory) if not is_directory}
    if metadata_name(location.name) in there:  # of a saver that knows nothing of folders
        return
    for shard in metadata.shards:
        if not _is_of_another(location, shard):
            for name in there & {shard.file, record_name(location.name, shard.rank)}:
                _move(storage, location.beside(name), f"{folder}/{name}")


def _move(storage: CheckpointStorage, path: str, target: str) -> bool:
    """Move a file; return False where the file or the folder is gone."""
    with contextlib.suppress(FileNotFoundError):
        if isinstance(storage, Exclusive):
            storage.rename(path, target, sync=False)
            return True
    return False


def _remove_shards(location: Location, metadata: CheckpointMetadata) -> None:
    """Remove shards where files can't be moved, each after a last look."""
    for shard in metadata.shards:
        if _is_saved_again(location):
            return
        if not _is_of_another(location, shard):
            location.storage.remove(location.beside(shard.file))
            location.storage.remove(location.beside(record_name(location.name, shard.rank)))


def _is_of_another(location: Location, shard: ShardEntry) -> bool:
    """Return whether a shard that is there is of a save that has begun since."""
    try:
        with open_file(location.storage, location.beside(shard.file)) as file:
            found = parse_header(read_at(file, 0, header_size(shard.checksum)))
    except CheckpointError as error:  # torn, or gone: it is no new one, which would be whole
        refuse_blind(error)
        return False
    except ValueError:
        return False
    return found.rank == shard.rank and found.checksum != shard.checksum
