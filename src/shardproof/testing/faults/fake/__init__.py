"""Shards directories in a fake file system (pyfakefs), which knows when code leaves it.

::

    from shardproof.testing import Layout
    from shardproof.testing.faults import fake_shards_dir

    with fake_shards_dir(Layout(n_shards=3, unreadable=[1])) as path:
        ...  # open(path / "acts000001.bin") raises PermissionError, for root too

Take it for code that uses `open`, `os.open`, `os.read`, `os.stat`, `os.scandir` or `pathlib`:
permissions count without privileges, and nothing is written to any disk. For everything else take
`shardproof.testing.shards_dir`, which is several times faster besides.

**What pyfakefs lets through is refused here**, with a `NotFakedError`: `os.pread` and its kin,
`mmap`, and what C code does with a descriptor. In pyfakefs these read, and write, the real file
that has the same number; here fake descriptors have numbers that no real one has.
docs/fake-file-system.md lists those calls, what is patched, and where pyfakefs differs from a disk.

Import what you test before the context begins: modules that are imported inside are forgotten at
its end, and imported anew.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardproof.testing._extras import extra
from shardproof.testing.samples._directories import MakeShardsDir, layout_of_maker, write_layout
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples._states import ShardState

with extra():
    from shardproof.testing.faults.fake._calls import NotFakedError, faked

__all__ = ["NotFakedError", "fake_shards_dir", "fake_shards_dir_maker"]

# pyfakefs has no such files; an emptied file that os.truncate extends reads as empty there.
_UNKNOWN_STATES = (ShardState.FIFO, ShardState.SOCKET, ShardState.SPARSE)


@contextlib.contextmanager
def fake_shards_dir(layout: Layout, to: str | os.PathLike[str] = "/scratch") -> Iterator[Path]:
    """Fake the file system for as long as the context lasts, with one shards directory in it.

    No user may do everything, so that unreadable shards are unreadable for root too. Inside another
    such context both directories are there until the outer one ends.

    `shardproof.validate` works on it at every level.

    Args:
        layout: What to write. No shard may be ``fifo``, ``socket`` or ``sparse``.
        to: The directory below which ``saev/shards/<hash>`` is made.

    Yields:
        The directory's absolute path. Only inside the context it leads anywhere.

    Raises:
        ValueError: A state that pyfakefs has not.
        FileExistsError: An outer context has a directory of this shape at this place.
        RuntimeError: pyfakefs fakes the file system already, as by its fixture ``fs``.
        NotFakedError: At the end: something inside would have left the fake file system.

    Example:
        >>> with fake_shards_dir(Layout(n_shards=2)) as path:
        ...     str(path.parent), len((path / "acts000000.bin").read_bytes())
        ('/scratch/saev/shards', 1024)
        >>> with fake_shards_dir(Layout(n_shards=2, unreadable=[1])) as path:
        ...     (path / "acts000001.bin").read_bytes()
        Traceback (most recent call last):
        PermissionError: [Errno 13] Permission denied...
    """
    for state in _UNKNOWN_STATES:
        if indices := layout.indices(state):
            raise ValueError(
                f"{state}: expected none, because pyfakefs has no such file; found shards "
                f"{list(indices)}. Use a real directory: shards_dir(...) or the fixture "
                "make_shards_dir"
            )
    with faked() as world:
        path = write_layout(layout, to)
        world.roots += (str(path.parent),)
        yield path


@contextlib.contextmanager
def fake_shards_dir_maker(to: str | os.PathLike[str] = "/scratch") -> Iterator[MakeShardsDir]:
    """Yield what the fixture ``make_fake_shards_dir`` gives; from its first call on all is fake."""
    with contextlib.ExitStack() as stack:
        numbers = itertools.count()

        def make(n_shards: int = 3, **keywords: Any) -> Path:
            layout = layout_of_maker(n_shards, **keywords)
            own = os.path.join(to, str(next(numbers)))
            return stack.enter_context(fake_shards_dir(layout, own))

        yield make
