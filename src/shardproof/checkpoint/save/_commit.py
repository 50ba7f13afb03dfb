"""Let at most one attempt make a checkpoint of a prefix, and of its own shards alone.

A process that gives a shard its name takes the seals of others away first, and then sees that there
is no checkpoint. A process that makes a checkpoint takes a seal first, takes the shards away that
are about to get their names, and then looks at those that have them. So of two processes that meet,
one finds that its own file is gone: a shard never takes the place of one that a checkpoint names.
Both also take away the folder into which a removal moves files (see `pruning._removal`): before a
shard gets its name, and before shards are looked at.
"""

import contextlib
from collections.abc import Callable, Iterator

from shardproof.checkpoint.format._layout import (
    new_pending_name,
    new_seal_name,
    pending_prefix,
    removal_prefix,
    seal_prefix,
)
from shardproof.checkpoint.save._before_saving import already_there, before_it_is_there, make_way
from shardproof.checkpoint.save._leftovers import take_away
from shardproof.checkpoint.storage._storage import Exclusive, Location
from shardproof.errors import CheckpointError

__all__ = ["being_added", "clear_way", "commit"]

_OVERTAKEN = (
    "another attempt saves a checkpoint of this prefix at the same time, and no checkpoint is made "
    "of two: let one of them save, or give each a prefix of its own"
)


@contextlib.contextmanager
def being_added(location: Location, name: str, *, overwrite: bool, sync: bool) -> Iterator[int]:
    """Write a new file of a checkpoint in the making; give its descriptor.

    Raises:
        CheckpointError: Another attempt made a checkpoint meanwhile, and it is not to be
            overwritten; or is just about to.
        OSError: It could not be written; what has the name is as it was.
    """
    storage, path = location.storage, location.beside(name)
    if not isinstance(storage, Exclusive):
        with storage.writer(path, sync=sync) as fd:
            yield fd
            make_way(location, overwrite=overwrite)
        return
    pending = location.beside(new_pending_name(location.name))
    try:
        with before_it_is_there(), storage.writer(pending, sync=sync) as fd:
            yield fd
        take_away(location, seal_prefix(location.name))
        clear_way(location, overwrite=overwrite)
        take_away(location, removal_prefix(location.name))
        with _overtaken(location, path):
            storage.rename(pending, path, sync=sync)
    except BaseException:
        with contextlib.suppress(OSError):  # it goes when a checkpoint is there
            storage.remove(pending)
        raise


def commit(location: Location, data: bytes, look: Callable[[], object], *, sync: bool) -> None:
    """Make a checkpoint: give metadata their name, if nothing has it.

    Args:
        location: Of the checkpoint.
        data: The metadata.
        look: Raises unless all that they name is there.
        sync: Whether they are on the disk before they have their name.

    Raises:
        CheckpointError: There is a checkpoint; or another attempt is at this prefix.
        OSError: They could not be written.
    """
    storage, path = location.storage, location.metadata
    if not isinstance(storage, Exclusive):
        look()
        make_way(location, overwrite=False)
        storage.write(path, data, sync=sync)
        return
    seal = location.beside(new_seal_name(location.name))
    with (
        _overtaken(location, path),
        storage.exclusive_writer(path, seal, sync=sync) as fd,
    ):
        take_away(location, pending_prefix(location.name), removal_prefix(location.name))
        look()
        with open(fd, "wb", closefd=False) as file:
            file.write(data)


@contextlib.contextmanager
def _overtaken(location: Location, path: str) -> Iterator[None]:
    """Raise the `CheckpointError` that says that another attempt was faster."""
    try:
        yield
    except CheckpointError:
        raise
    except FileExistsError as error:
        raise already_there(location) from error
    except FileNotFoundError as error:
        raise CheckpointError(_OVERTAKEN, path=path) from error


def clear_way(location: Location, *, overwrite: bool) -> None:
    """Do as `make_way`; nothing is given up for a shard that could be moved away.

    Raises:
        OSError: The folder of somebody else's removal can't be removed.
    """
    if overwrite:
        take_away(location, removal_prefix(location.name))
    make_way(location, overwrite=overwrite)
