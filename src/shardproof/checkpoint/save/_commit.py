"""At most one attempt makes a checkpoint of a prefix, and of its own shards alone.

Whoever gives a shard its name first takes the seals of others away, and then sees that there is no
checkpoint. Whoever makes a checkpoint first has a seal, takes the shards away that are about to get
their names, and then looks at those that have them. So one of two who meet finds that its own file
is gone: a shard never takes the place of one that a checkpoint names. Both also take away what
`_removal` moves files into, before a shard gets its name and before shards are looked at.
"""

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator

from shardproof.checkpoint.format._layout import (
    metadata_name,
    new_pending_name,
    new_seal_name,
    pending_prefix,
    removal_of,
    removal_prefix,
    seal_prefix,
)
from shardproof.checkpoint.save._before_saving import already_there, before_it_is_there, make_way
from shardproof.checkpoint.storage._storage import CheckpointStorage, Exclusive, Place, holding
from shardproof.errors import CheckpointError

__all__ = ["being_added", "clear_way", "commit", "remove_folder", "take_away"]

_NO_FOLDER = (
    "expected a folder of files that were moved there to be removed, found a directory in it or "
    "something else in its place: see what it is, and remove it"
)

_STAYS_FULL = (
    "expected a folder of files that were moved there to be removed, found one that stays not "
    "empty though nothing in it can be moved: see what it is, and remove it"
)

_PAUSE = 0.1  # seconds

_OVERTAKEN = (
    "another attempt saves a checkpoint of this prefix at the same time, and no checkpoint is made "
    "of two: let one of them save, or give each a prefix of its own"
)


@contextlib.contextmanager
def being_added(place: Place, name: str, *, overwrite: bool, sync: bool) -> Iterator[int]:
    """Give the descriptor of a new file of a checkpoint in the making, which is whole in the end.

    Raises:
        CheckpointError: Another attempt made a checkpoint meanwhile, and it is not to be
            overwritten; or is just about to.
        OSError: It could not be written; what has the name is as it was.
    """
    storage, path = place.storage, place.beside(name)
    if not isinstance(storage, Exclusive):
        with storage.being_written(path, sync=sync) as fd:
            yield fd
            make_way(place, overwrite=overwrite)
        return
    pending = place.beside(new_pending_name(place.name))
    try:
        with before_it_is_there(), storage.being_written(pending, sync=sync) as fd:
            yield fd
        take_away(place, seal_prefix(place.name))
        clear_way(place, overwrite=overwrite)
        take_away(place, removal_prefix(place.name))
        with _overtaken(place, name):
            storage.rename(pending, path, sync=sync)
    except BaseException:
        with contextlib.suppress(OSError):  # it goes when a checkpoint is there
            storage.remove(pending)
        raise


def commit(place: Place, data: bytes, look: Callable[[], object], *, sync: bool) -> None:
    """Make a checkpoint: give metadata their name, if nothing has it.

    Args:
        place: Of the checkpoint.
        data: The metadata.
        look: Raises unless all that they name is there.
        sync: Whether they are on the disk before they have their name.

    Raises:
        CheckpointError: There is a checkpoint; or another attempt is at this prefix.
        OSError: They could not be written.
    """
    storage, name = place.storage, metadata_name(place.name)
    if not isinstance(storage, Exclusive):
        look()
        make_way(place, overwrite=False)
        storage.write(place.beside(name), data, sync=sync)
        return
    seal = place.beside(new_seal_name(place.name))
    with (
        _overtaken(place, name),
        storage.being_published(place.beside(name), seal, sync=sync) as fd,
    ):
        take_away(place, pending_prefix(place.name), removal_prefix(place.name))
        look()
        with open(fd, "wb", closefd=False) as file:
            file.write(data)


@contextlib.contextmanager
def _overtaken(place: Place, name: str) -> Iterator[None]:
    """Say what it means that somebody was faster."""
    try:
        yield
    except CheckpointError:
        raise
    except FileExistsError as error:
        raise already_there(place) from error
    except FileNotFoundError as error:
        raise CheckpointError(_OVERTAKEN, path=place.address(name)) from error


def clear_way(place: Place, *, overwrite: bool) -> None:
    """Do as `make_way`; nothing is given up for a shard that could be moved away.

    Raises:
        OSError: The folder of somebody else's removal can't be removed.
    """
    if overwrite:
        take_away(place, removal_prefix(place.name))
    make_way(place, overwrite=overwrite)


def take_away(place: Place, *prefixes: str) -> None:
    """Remove files of which the names begin so, and folders of removals.

    Raises:
        CheckpointError: As of `remove_folder`: shards could be moved into it still.
    """
    for name, is_directory in place.storage.entries(place.directory):
        if not name.startswith(prefixes):
            continue
        if not is_directory:
            place.storage.remove(place.beside(name))
        elif removal_of(name, is_directory=True):
            remove_folder(place.storage, place.beside(name))


def remove_folder(storage: CheckpointStorage, folder: str) -> None:
    """Remove the folder of a removal, with the files that were moved into it meanwhile.

    Raises:
        CheckpointError: A directory is in it, or a name that nothing has; or something else is in
            its place.
    """
    try:
        with holding(storage, os.path.dirname(folder)) as held:
            _remove_emptied(held, folder)
    except (IsADirectoryError, NotADirectoryError) as error:
        raise CheckpointError(_NO_FOLDER, path=storage.address(folder)) from error


def _remove_emptied(storage: CheckpointStorage, folder: str) -> None:
    n_in_vain = 0
    while isinstance(storage, Exclusive) and not storage.remove_directory(folder):
        if n_in_vain == 2:
            raise CheckpointError(_STAYS_FULL, path=storage.address(folder))
        if _empty(storage, folder):
            n_in_vain = 0
        else:  # others may have moved what was there, and something else came
            n_in_vain += 1
            time.sleep(_PAUSE)


def _empty(storage: CheckpointStorage, folder: str) -> bool:
    """Remove the files in a folder; say whether any could be moved."""
    # NFS leaves a file that somebody reads where it was removed: in the folder it would stay.
    outside, is_any_moved = f"{folder}.tmp", False
    for name, is_directory in storage.entries(folder):
        if is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"{folder}/{name}")
        if isinstance(storage, Exclusive):
            with contextlib.suppress(FileNotFoundError):
                storage.rename(f"{folder}/{name}", outside, sync=False)
                is_any_moved = True
        storage.remove(outside)
    return is_any_moved
