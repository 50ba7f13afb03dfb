"""Refuse what can't be saved, before anything of a checkpoint is written."""

import contextlib
import errno
import os
from collections.abc import Iterator

from shardproof._base.arguments import count
from shardproof._base.messages import quoted
from shardproof.checkpoint.format._layout import metadata_name, pruned_name
from shardproof.checkpoint.storage._storage import Location
from shardproof.errors import CheckpointError, UnsyncedError

__all__ = [
    "already_there",
    "before_it_is_there",
    "make_way",
    "refuse_name",
    "refuse_step",
    "refuse_text",
]


def refuse_step(step: int | None) -> None:
    """Raise a `ValueError` unless a step is 0 or more, or not told."""
    if step is not None:
        count("step", step, 0, 2**63 - 1)


def refuse_text(name: str, text: str, expected: str = "text") -> None:
    """Raise unless a text can be written in UTF-8, as records and metadata are.

    Raises:
        ValueError: It can't.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name}: expected {expected} in Unicode, found {quoted(text)}")


def refuse_name(location: Location) -> None:
    """Raise unless metadata can name the shards of a prefix; raises as `refuse_text`."""
    refuse_text("prefix", location.name, "a name")


@contextlib.contextmanager
def before_it_is_there() -> Iterator[None]:
    """Raise `OSError` for `UnsyncedError`, which would say that what is saved is there.

    Raises:
        OSError: What the operating system said.
    """
    try:
        yield
    except UnsyncedError as error:
        number = error.errno or errno.EIO
        raise OSError(number, os.strerror(number), error.path) from error


def make_way(location: Location, *, overwrite: bool) -> None:
    """Give up a checkpoint that is there, and the remains of one that is being removed.

    Raises:
        CheckpointError: There is one, and it is not to be overwritten.
        OSError: Nobody could look, or it could not be given up for good.
    """
    names = {name for name, _ in location.storage.list(location.directory)}
    metadata, pruned = metadata_name(location.name), pruned_name(location.name)
    if metadata in names:
        if not overwrite:
            raise already_there(location)
        with before_it_is_there(), contextlib.suppress(FileNotFoundError):  # another rank did it
            location.storage.move(location.beside(metadata), location.beside(pruned))
    if {metadata, pruned} & names:
        location.storage.remove(location.beside(pruned))


def already_there(location: Location) -> CheckpointError:
    """Return the error that refuses to replace a checkpoint."""
    problem = (
        "there is a checkpoint already: save under another prefix, or give overwrite=True, "
        "which gives it up before the new one is whole"
    )
    return CheckpointError(problem, path=location.metadata)
