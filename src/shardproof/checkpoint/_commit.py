"""At most one attempt makes a checkpoint of a prefix, and of its own shards alone.

Whoever gives a shard its name first takes the seals of others away, and then sees that there is no
checkpoint. Whoever makes a checkpoint first has a seal, takes the shards away that are about to get
their names, and then looks at those that have them. So one of two who meet finds that its own file
is gone: a shard never takes the place of one that a checkpoint names.
"""

import contextlib
from collections.abc import Callable, Iterator

from shardproof.checkpoint._before_saving import already_there, make_way
from shardproof.checkpoint._layout import (
    metadata_name,
    new_pending_name,
    new_seal_name,
    pending_prefix,
    seal_prefix,
)
from shardproof.checkpoint._storage import Exclusive, Place
from shardproof.errors import CheckpointError

__all__ = ["being_added", "commit"]

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
        with storage.being_written(pending, sync=sync) as fd:
            yield fd
        _take_away(place, seal_prefix(place.name))
        make_way(place, overwrite=overwrite)
        with _overtaken(place, name):
            storage.rename(pending, path, sync=sync)
    except BaseException:
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
        _take_away(place, pending_prefix(place.name))
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


def _take_away(place: Place, prefix: str) -> None:
    for name, _ in place.storage.entries(place.directory):
        if name.startswith(prefix):
            place.storage.remove(place.beside(name))
