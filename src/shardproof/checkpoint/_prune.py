"""Remove old checkpoints, and never the last whole one.

Others may save meanwhile: what a save has put in the place of a checkpoint is never touched.
A removal makes a folder in the gate of the prefix, sees that there is no seal, and then that the
checkpoint is still the one that is to go. From then on a file goes by being moved into that folder,
which fails where there is none: the metadata first, which say from there what is to go, then shards
and records. A save takes such folders away before a shard gets its name, and before shards are
looked at for a seal: from then on no removal moves anything. What a kill left in a folder, the next
removal finishes.
"""

import contextlib
import logging
import os
from collections.abc import Callable

from shardproof._base.arguments import checked, count
from shardproof._base.messages import told
from shardproof.checkpoint.format._layout import (
    gate_name,
    header_size,
    metadata_name,
    new_own_name,
    own_prefix,
    parse_header,
    pruned_name,
    record_name,
)
from shardproof.checkpoint.format._metadata import CheckpointMetadata, ShardEntry
from shardproof.checkpoint.save._leftovers import remove_folder, sweep_leftovers, take_away
from shardproof.checkpoint.storage._prefixes import prefixes_in
from shardproof.checkpoint.storage._reading import open_file, read_at, read_metadata
from shardproof.checkpoint.storage._storage import (
    CheckpointStorage,
    Exclusive,
    Location,
    holding,
    in_gate,
    leave_gate,
    look_up,
    outside_gate,
    path_in,
    storage_of,
)
from shardproof.checkpoint.verify._directories import is_whole, newest_first
from shardproof.checkpoint.verify._verifier import refuse_blind
from shardproof.errors import CheckpointError, CheckpointNotFoundError
from shardproof.report import Level

_TRIES = 100

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
    the next call finishes it; the log tells of one that another user began and that this one may
    not finish. Only files that a metadata file names are removed, unless a save that has begun
    since has put another in their place; and what a kill of a save has left beside a checkpoint.
    One at which a save is under way is passed over. Nothing goes where a link leads to, be it that
    one is put in the place of a subdirectory meanwhile.

    Args:
        path: A directory: checkpoints are in it, or in its direct subdirectories.
        keep: How many steps stay.
        storage: By default a directory, or for a URL with ``://`` what fsspec opens.
        level: How hard to look before a checkpoint counts as whole.

    Raises:
        OSError: Something can't be listed, looked at or removed; the next call finishes it.
        TypeError: An argument of the wrong type.
        ValueError: ``keep`` below 1.

    Example:
        >>> from shardproof.checkpoint import prune
        >>> prune(output_dir, keep=3)
        []
    """
    count("keep", keep, 1)
    found = storage_of(path, storage)
    with holding(found, found.url(os.fspath(path))) as held:
        prefixes = prefixes_in(path, held)
        # First, while there are metadata still that tell what is not needed.
        for where in {location.directory: None for location in prefixes.committed}:
            sweep_leftovers(held, where)
            with contextlib.suppress(FileNotFoundError):  # the directory was removed
                held.sweep(where)
        removed: list[Location] = []
        for folder in prefixes.removals:
            try:
                if location := _finish(folder):
                    removed.append(location)
            except PermissionError as error:
                logger.warning("Passing over a removal that another user began: %s", told(error))
        removed += filter(_finish_given_up, prefixes.half_removed)
        kept: set[int] = set()  # steps, of each of which there may be several checkpoints
        for candidate in newest_first(prefixes.committed):
            step = candidate.metadata.step
            if step in kept:
                continue
            if len(kept) < keep:
                if is_whole(candidate, level):
                    kept.add(step)
            elif _remove(candidate.location, candidate.metadata):
                removed.append(candidate.location)
        for location in [*prefixes.gates, *removed]:  # some were left in vain
            leave_gate(location)
    return [location.path for location in removed]


def _remove(location: Location, metadata: CheckpointMetadata) -> bool:
    """Remove a checkpoint, unless another one is in its place; say whether it was removed."""
    if not _is_still(location, metadata):
        return False
    if isinstance(location.storage, Exclusive):

        def may_go() -> bool:
            seal = own_prefix(location.name, "seal")
            is_sealed = any(seal in name for name, _ in in_gate(location))
            return not is_sealed and _is_still(location, metadata)

        return _move_out(location, metadata_name(location.name), may_go)
    location.storage.move(location.metadata, location.beside(pruned_name(location.name)))
    return _finish_given_up(location)


def _finish_given_up(location: Location) -> bool:
    """Remove a checkpoint whose metadata file was renamed; say whether it was removed."""
    remains = pruned_name(location.name)
    metadata = _what_was(location, remains)
    if metadata is None:
        return False
    if _is_saved_again(location):
        location.storage.remove(location.beside(remains))
        return False
    if isinstance(location.storage, Exclusive):

        def may_go() -> bool:
            if look_up(location.storage, location.beside(remains)) is None:
                return False
            take_away(location, "seal")  # those that killed saves left
            return not _is_saved_again(location)

        return _move_out(location, remains, may_go)
    for shard in metadata.shards:  # files can't be moved: each goes after a last look
        if _is_saved_again(location):
            break
        if not _is_of_another(location, shard):
            location.storage.remove(location.beside(shard.file))
            location.storage.remove(location.beside(record_name(location.name, shard.rank)))
    location.storage.remove(location.beside(remains))
    return True


def _finish(folder: Location) -> Location | None:
    """Remove what the metadata in a folder name, and the folder; return what was removed.

    Of a file that was in one, only that goes. What torn metadata named is not known: it stays,
    and is no half of a removal any more.
    """
    storage, end, location = folder.storage, pruned_name(""), None
    if folder.path.endswith(".tmp"):
        storage.remove(folder.path)
        return None
    for name in [name for name, _ in storage.list(folder.path) if name.endswith(end)]:
        metadata = _what_was(Location(storage, f"{folder.path}/{name.removesuffix(end)}"), name)
        if not isinstance(storage, Exclusive):
            return None
        if metadata is None:
            continue
        location = Location(storage, path_in(outside_gate(folder), name.removesuffix(end)))
        storage.sync_directory(location.directory)  # no power cut brings metadata alone back
        if _is_saved_again(location):  # by a saver that knows nothing of folders
            continue
        for shard in metadata.shards:
            if not _is_of_another(location, shard):
                for file in (shard.file, record_name(location.name, shard.rank)):
                    if look_up(storage, location.beside(file)) is False:
                        _move(storage, location.beside(file), f"{folder.path}/{file}")
    try:
        remove_folder(folder)
    except CheckpointError as error:
        logger.warning("What is left of a removal stays: %s", told(error))
    return location


def _is_still(location: Location, metadata: CheckpointMetadata) -> bool:
    try:
        return read_metadata(location, metadata_name(location.name)) == metadata
    except CheckpointError as error:
        refuse_blind(error)
        return False  # maybe another save writes it: these are no remains, of which a log tells


def _is_saved_again(location: Location) -> bool:
    return look_up(location.storage, location.metadata) is not None


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
    folder = location.beside(new_own_name(location.name, "removal"))
    try:
        try:
            if not _made_in_gate(location, folder):  # its directory was moved away
                return False
            if may_go():
                target = f"{folder}/{pruned_name(location.name)}"
                is_moved = _move(storage, location.beside(name), target)
        except BaseException:
            with contextlib.suppress(OSError):
                if isinstance(storage, Exclusive):  # empty, it stops others, who may not remove it
                    storage.remove_directory(folder)
            raise
        _finish(Location(storage, folder))
    finally:
        leave_gate(location)
    return is_moved


def _made_in_gate(location: Location, folder: str) -> bool:
    storage = location.storage
    for _ in range(_TRIES):  # somebody may leave the gate meanwhile, and remove it as empty
        with contextlib.suppress(FileNotFoundError):
            if isinstance(storage, Exclusive):
                storage.make_folder(location.beside(gate_name(location.name)))
            storage.make_directories(folder)
            return True
    return False


def _move(storage: CheckpointStorage, path: str, target: str) -> bool:
    """Move a file; return False where the file or the folder is gone."""
    with contextlib.suppress(FileNotFoundError):
        if isinstance(storage, Exclusive):
            storage.rename(path, target, sync=False)
            return True
    return False


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
