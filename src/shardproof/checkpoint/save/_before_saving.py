"""What is looked at before anything of a checkpoint is written."""

import contextlib
import errno
import os
from collections.abc import Iterator

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._layout import metadata_name, pruned_name
from shardproof.checkpoint.storage._storage import Place
from shardproof.errors import CheckpointError, UnsyncedError

__all__ = [
    "already_there",
    "before_it_is_there",
    "make_way",
    "refuse_name",
    "refuse_number",
    "refuse_step",
    "refuse_text",
]


def refuse_number(name: str, value: int, least: int, most: int) -> None:
    """Raise unless an argument is a number in these limits.

    Raises:
        ValueError: It is too small or too large.
    """
    if not least <= value <= most:
        raise ValueError(f"{name}: expected {least} to {most}, found {value}")


def refuse_step(step: int | None) -> None:
    """Raise unless a step is 0 or more, or not told; raises as `refuse_number`."""
    if step is not None:
        refuse_number("step", step, 0, 2**63 - 1)


def refuse_text(name: str, text: str, expected: str = "text") -> None:
    """Raise unless an argument can be written in UTF-8, as notes and metadata are.

    Raises:
        ValueError: It can't.
    """
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name}: expected {expected} in Unicode, found {quoted(text)}")


def refuse_name(place: Place) -> None:
    """Raise unless metadata can name the shards of a prefix; raises as `refuse_text`."""
    refuse_text("prefix", place.name, "a name")


@contextlib.contextmanager
def before_it_is_there() -> Iterator[None]:
    """Let no error say that what is saved is there: so would one of another file's unsynced name.

    Raises:
        OSError: What the operating system said.
    """
    try:
        yield
    except UnsyncedError as error:
        number = error.errno or errno.EIO
        raise OSError(number, os.strerror(number), error.path) from error


def make_way(place: Place, *, overwrite: bool) -> None:
    """See that there is no checkpoint, nor the remains of one that is being removed.

    Raises:
        CheckpointError: There is one, and it is not to be overwritten.
        OSError: Nobody could look, or it could not be given up for good.
    """
    names = {name for name, _ in place.storage.entries(place.directory)}
    metadata, pruned = metadata_name(place.name), pruned_name(place.name)
    if metadata in names:
        if not overwrite:
            raise already_there(place)
        with before_it_is_there(), contextlib.suppress(FileNotFoundError):  # another rank did it
            place.storage.move(place.beside(metadata), place.beside(pruned))
    if {metadata, pruned} & names:
        place.storage.remove(place.beside(pruned))


def already_there(place: Place) -> CheckpointError:
    """Return the refusal to replace a checkpoint."""
    problem = (
        "there is a checkpoint already: save under another prefix, or give overwrite=True, "
        "which gives it up before the new one is whole"
    )
    return CheckpointError(problem, path=place.address(metadata_name(place.name)))
