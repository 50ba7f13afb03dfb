"""Shards directories in a fake file system, with an end."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardproof.testing.faults.fake._calls import faked
from shardproof.testing.samples.saev._directories import MakeShardsDir, layout_of_maker
from shardproof.testing.samples.saev._layout import Layout
from shardproof.testing.samples.saev._states import ShardState
from shardproof.testing.samples.saev._writing import write_layout

__all__ = ["fake_shards_dir", "fake_shards_dir_maker"]

# pyfakefs has no such files; an emptied file that os.truncate extends reads as empty there.
_UNKNOWN_STATES = (ShardState.FIFO, ShardState.SOCKET, ShardState.SPARSE)


@contextlib.contextmanager
def fake_shards_dir(value: Layout, base: str | os.PathLike[str] = "/scratch") -> Iterator[Path]:
    """Fake the file system for as long as the context lasts, with one shards directory in it.

    Nobody may do everything, so that unreadable shards are unreadable for root too. Inside another
    such context both directories are there until the outer one ends.

    `shardproof.validate` works on it at every level.

    Args:
        value: What to write; see `layout`. No shard may be ``fifo``, ``socket`` or ``sparse``.
        base: The directory below which ``saev/shards/<hash>`` is made.

    Yields:
        The directory's absolute path. Only inside the context it leads anywhere.

    Raises:
        ValueError: A state that pyfakefs has not.
        FileExistsError: An outer context has a directory of this shape at this place.
        RuntimeError: The file system is faked by somebody else, as by pyfakefs's fixture ``fs``.
        NotFakedError: At the end: something inside would have left the fake file system.

    Example:
        >>> with fake_shards_dir(layout(n_shards=2)) as path:
        ...     str(path.parent), len((path / "acts000000.bin").read_bytes())
        ('/scratch/saev/shards', 1024)
        >>> with fake_shards_dir(layout(n_shards=2, unreadable=[1])) as path:
        ...     (path / "acts000001.bin").read_bytes()
        Traceback (most recent call last):
        PermissionError: [Errno 13] Permission denied...
    """
    _refuse_states(value)
    with faked() as world:
        path = write_layout(value, base)
        world.roots += (str(path.parent),)
        yield path


@contextlib.contextmanager
def fake_shards_dir_maker(base: str | os.PathLike[str] = "/scratch") -> Iterator[MakeShardsDir]:
    """Yield what the fixture ``fake_shards_dir`` gives; from its first call on all is fake.

    Args:
        base: The directory below which each call has a directory of its own.

    Yields:
        A function with the arguments of the fixture ``make_shards_dir``.

    Raises:
        NotFakedError: At the end: something inside would have left the fake file system.

    Example:
        >>> with fake_shards_dir_maker() as make:
        ...     sorted(file.name for file in make(2, missing_shards=[0]).iterdir())
        ['acts000001.bin', 'metadata.json', 'shards.json']
    """
    with contextlib.ExitStack() as stack:
        numbers = itertools.count()

        def make(n_shards: int = 3, **keywords: Any) -> Path:
            value = layout_of_maker({"n_shards": n_shards, **keywords})
            own = os.path.join(base, str(next(numbers)))
            return stack.enter_context(fake_shards_dir(value, own))

        yield make


def _refuse_states(value: Layout) -> None:
    for state in _UNKNOWN_STATES:
        if indices := value.indices(state):
            raise ValueError(
                f"{state}: expected none, because pyfakefs has no such file; found shards "
                f"{list(indices)}. Use a real directory: shards_dir(...) or the fixture "
                "make_shards_dir"
            )
