"""Shards directories in a fake file system (pyfakefs), which knows when code leaves it.

::

    from shardproof.testing import Layout
    from shardproof.testing.faults import fake_shards_dir

    with fake_shards_dir(Layout(n_shards=3, unreadable=[1])) as path:
        ...  # open(path / "acts000001.bin") raises PermissionError, for root too

Take it for code that uses `open`, `os.open`, `os.read`, `os.stat`, `os.scandir` or `pathlib`:
permissions count without privileges, and nothing is written to any disk. For everything else take
`shardproof.testing.shards_dir`, which is several times faster besides.

**What pyfakefs lets through, is refused here.** It does not fake `os.pread` and its kin, `mmap`, or
what C code does with a descriptor: there they read, and write, the real file that has the same
number. Here fake descriptors have numbers that no real one has, so no other file is ever touched;
and each of these calls raises a `NotFakedError`:

* ``os``: ``pread preadv readv pwrite pwritev writev sendfile copy_file_range splice posix_fadvise
  posix_fallocate lockf dup dup2 fchown fchdir fstatvfs fpathconf``, and with a fake path ``statvfs
  pathconf mkfifo lchown``,
* ``fcntl``: ``fcntl flock ioctl lockf`` (which pyfakefs passes over in silence),
* ``mmap.mmap``, and with it ``numpy.memmap`` and ``numpy.load(mmap_mode=...)``,
* ``numpy.fromfile`` and ``ndarray.tofile``, which begin with ``os.dup``,
* ``io.FileIO``, and whatever else of Python's own opens, lists, renames or removes a fake path in
  the real file system.

With real descriptors - pipes, sockets, what was open before - all of these work as ever, and so do
``os.read``, ``os.write``, ``os.close`` and ``open(fd)``, which pyfakefs alone would refuse.

**What is patched.** Module globals, whenever the module was imported: ``os``, ``io``, ``pathlib``,
``shutil``, ``fcntl`` and names such as ``from os import pread``. Not patched is what was put
elsewhere before: in a default argument, a class or a dict. Calls through those are still refused
where CPython audits them (``open``, ``mmap``, ``fcntl`` and most that take a path); of the rest,
those with a descriptor fail with EBADF and those with a path with ENOENT. C code that opens paths
itself (pyarrow, h5py, safetensors) and other processes see the real file system.

Import what you test before the context begins: modules that are imported inside are forgotten at
its end, and imported anew. Those of shardproof and numpy are not.

**Where pyfakefs differs from a disk** (5.7.0 to 6.3.2): `os.open` gives the file that it opens the
mode 0o755; ``DirEntry.is_file()`` of a dangling or looping link is True; reading a directory's
descriptor fails with EBADF and not with EISDIR; a file that was emptied and that `os.truncate` then
extends reads as empty; nothing has holes.
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
    """Yield what the fixture ``make_fake_shards_dir`` gives; from its first call on all is fake.

    Args:
        to: The directory below which each call has a directory of its own.

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
            layout = layout_of_maker(n_shards, **keywords)
            own = os.path.join(to, str(next(numbers)))
            return stack.enter_context(fake_shards_dir(layout, own))

        yield make
