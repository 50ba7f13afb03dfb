"""A checkpoint is removed while others save: what a save has put in its place is never touched.

Whoever removes one makes a folder, sees that nobody has a seal, and then that it is still the one
that is to go. From then on a file goes by being moved into that folder, which fails where there is
none: the metadata first, which say from there what is to go, then shards and notes. Whoever saves
takes such folders away before a shard gets its name, and before shards are looked at for a seal:
from then on nobody moves anything. What a kill left in a folder, the next one finishes.
"""

import contextlib
import logging
from collections.abc import Callable

from shardproof._base.messages import told
from shardproof.checkpoint.format._layout import (
    header_size,
    metadata_name,
    new_removal_name,
    note_name,
    parse_header,
    pruned_name,
    seal_prefix,
)
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry
from shardproof.checkpoint.save._commit import remove_folder, take_away
from shardproof.checkpoint.storage._metadata_file import read_metadata
from shardproof.checkpoint.storage._open_shard import open_file, read_at
from shardproof.checkpoint.storage._storage import CheckpointStorage, Exclusive, Place
from shardproof.checkpoint.verify._inspect import refuse_blind
from shardproof.errors import CheckpointError, CheckpointNotFoundError

__all__ = ["finish", "finish_given_up", "remove"]

logger = logging.getLogger("shardproof.checkpoint")


def remove(place: Place, metadata: CheckpointMetadata) -> bool:
    """Remove a checkpoint, unless another one is in its place; say whether it was removed.

    Raises:
        OSError: Something could not be looked at or removed; the next call finishes it.
    """
    name = metadata_name(place.name)
    if not _is_still(place, metadata):
        return False
    if isinstance(place.storage, Exclusive):
        return _move_out(place, name, lambda: not _is_sealed(place) and _is_still(place, metadata))
    place.storage.move(place.beside(name), place.beside(pruned_name(place.name)))
    return finish_given_up(place)


def finish_given_up(place: Place) -> bool:
    """Remove a checkpoint whose metadata file was renamed; say whether it was removed.

    Raises:
        OSError: As of `remove`.
    """
    remains = pruned_name(place.name)
    metadata = _what_was(place, remains)
    if metadata is None:
        return False
    if _is_saved_again(place):
        place.storage.remove(place.beside(remains))
        return False
    if isinstance(place.storage, Exclusive):
        return _move_out(place, remains, lambda: _is_given_up(place))
    _remove_shards(place, metadata)
    place.storage.remove(place.beside(remains))
    return True


def finish(folder: Place) -> Place | None:
    """Remove what the metadata in a folder name, and the folder; return what was removed.

    Of a file that was in one, only that goes. Where metadata are torn, nobody knows what they
    named: that stays, and is no half of a removal any more.

    Raises:
        OSError: As of `remove`.
    """
    storage, end, place = folder.storage, pruned_name(""), None
    if folder.path.endswith(".tmp"):
        storage.remove(folder.path)
        return None
    for name in [name for name, _ in storage.entries(folder.path) if name.endswith(end)]:
        metadata = _what_was(Place(storage, f"{folder.path}/{name.removesuffix(end)}"), name)
        if not isinstance(storage, Exclusive):
            return None
        if metadata is not None:
            place = Place(storage, folder.beside(name.removesuffix(end)))
            _move_shards(place, metadata, folder.path)
    try:
        remove_folder(storage, folder.path)
    except CheckpointError as error:
        logger.warning("What is left of a removal stays: %s", told(error))
    return place


def _is_still(place: Place, metadata: CheckpointMetadata) -> bool:
    try:
        return read_metadata(place, metadata_name(place.name)) == metadata
    except CheckpointError as error:
        refuse_blind(error)
        return False


def _is_sealed(place: Place) -> bool:
    return any(name.startswith(seal_prefix(place.name)) for name in _names(place))


def _is_saved_again(place: Place) -> bool:
    return metadata_name(place.name) in _names(place)


def _is_given_up(place: Place) -> bool:
    """Whether nobody saves, with which seals go that kills have left, and what remains is there."""
    if pruned_name(place.name) not in _names(place):
        return False
    take_away(place, seal_prefix(place.name))
    return not _is_saved_again(place)


def _names(place: Place) -> set[str]:
    return {name for name, _ in place.storage.entries(place.directory)}


def _what_was(place: Place, name: str) -> CheckpointMetadata | None:
    """What the metadata of a checkpoint say that is being removed; None if they say nothing."""
    try:
        return read_metadata(place, name)
    except CheckpointNotFoundError:
        return None
    except CheckpointError as error:
        refuse_blind(error)
        logger.warning("What is left of a checkpoint stays: %s", told(error))
        return None


def _move_out(place: Place, name: str, may_go: Callable[[], bool]) -> bool:
    """Move the metadata into a new folder, if they may go from there; then the rest."""
    storage, is_moved = place.storage, False
    folder = place.beside(new_removal_name(place.name))
    try:
        storage.make_directories(folder)
    except FileNotFoundError:  # its directory was moved away
        return False
    try:
        if may_go():
            is_moved = _is_moved(storage, place.beside(name), f"{folder}/{pruned_name(place.name)}")
    except BaseException:
        _take_back(storage, folder)
        raise
    finish(Place(storage, folder))
    return is_moved


def _take_back(storage: CheckpointStorage, folder: str) -> None:
    """Remove a folder into which nothing was moved: it stops others, who may not remove it."""
    with contextlib.suppress(OSError):
        if isinstance(storage, Exclusive):
            storage.remove_directory(folder)


def _move_shards(place: Place, metadata: CheckpointMetadata, folder: str) -> None:
    storage = place.storage
    if isinstance(storage, Exclusive):
        storage.sync_directory(place.directory)  # no power cut brings metadata without shards back
    there = {name for name, is_directory in storage.entries(place.directory) if not is_directory}
    if metadata_name(place.name) in there:  # of a saver that knows nothing of folders
        return
    for shard in metadata.shards:
        if not _is_of_another(place, shard):
            for name in there & {shard.file, note_name(place.name, shard.rank)}:
                _is_moved(storage, place.beside(name), f"{folder}/{name}")


def _is_moved(storage: CheckpointStorage, path: str, target: str) -> bool:
    """Whether a file was moved; it is not where the file or the folder is gone."""
    with contextlib.suppress(FileNotFoundError):
        if isinstance(storage, Exclusive):
            storage.rename(path, target, sync=False)
            return True
    return False


def _remove_shards(place: Place, metadata: CheckpointMetadata) -> None:
    """Remove shards where nothing can be moved: a last look is all."""
    for shard in metadata.shards:
        if _is_saved_again(place):
            return
        if not _is_of_another(place, shard):
            place.storage.remove(place.beside(shard.file))
            place.storage.remove(place.beside(note_name(place.name, shard.rank)))


def _is_of_another(place: Place, shard: ShardEntry) -> bool:
    """Whether a shard that is there is one of a save that has begun since."""
    try:
        with open_file(place.storage, place.beside(shard.file)) as file:
            found = parse_header(read_at(file, 0, header_size(shard.checksum)))
    except CheckpointError as error:  # torn, or gone: it is no new one, which would be whole
        refuse_blind(error)
        return False
    except ValueError:
        return False
    return found.rank == shard.rank and found.checksum != shard.checksum
