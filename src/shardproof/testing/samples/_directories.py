"""Sample directories with an end, in which ``chmod 0`` counts for root too."""

import contextlib
import ctypes
import errno
import functools
import os
import stat
import tempfile
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from shardproof.testing.samples._layout import Layout, SampleFormat, layout_of


class MakeShardsDir(Protocol):
    """What the fixtures ``make_shards_dir`` and ``shards_dir_factory`` give: call it for a path."""

    def __call__(
        self,
        n_shards: int = 3,
        *,
        format: str | SampleFormat = "saev",  # noqa: A002 - the one word for it
        **keywords: Any,
    ) -> Path:
        """Write a new shards directory, and return its absolute path; each call has its own.

        It takes what `Layout` takes, and raises the same errors. States are also called
        ``missing_shards``, ``empty_shards``, ``unreadable_shards`` and ``directory_shards``.
        """


class MakeCheckpoint(Protocol):
    """What the fixture ``make_checkpoint`` gives; its docstring says what it takes."""

    def __call__(self, world_size: int = 3, step: int = 1, **keywords: Any) -> Path:
        """Write a new checkpoint and return the prefix of its files."""


def write_layout(layout: Layout, to: str | os.PathLike[str]) -> Path:
    """Write a sample directory to a path, and return that, absolute.

    The format's own reader accepts it; saev's and huggingface_hub's also look at names of
    directories, which are right where ``to`` ends in ``layout.folder``.

    ``layout.read_bytes`` returns what is in a file before any damage. In some states a file outside
    is needed: of ``outside`` it is in ``<directory>-elsewhere``, of ``escaping`` beside the
    directory too.

    Args:
        layout: What to write.
        to: The directory itself, new or empty; it and those above it are made. Of a checkpoint it
            is the prefix, with which the paths of all files begin, so it must end in the layout's
            ``prefix``, such as ``step_1/model``; other files may be beside these.

    Raises:
        FileExistsError: The directory is not empty, or a file of the checkpoint is there.
        OSError: It could not be written.
        ValueError: The path of a checkpoint does not end in its prefix.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     path = write_layout(Layout(n_shards=3), f"{base}/data")
        ...     path.name, len(list(path.glob("acts*.bin")))
        ('data', 3)
    """
    path, is_prefix = Path(os.path.abspath(to)), layout.format.is_prefix
    if is_prefix and path.name != (name := Path(layout.folder).name):
        raise ValueError(f"to: expected a path that ends in '/{name}', found {str(path)!r}")
    directory = path.parent if is_prefix else path
    directory.mkdir(parents=True, exist_ok=True)
    there = {*os.listdir(directory)}
    if is_prefix:
        there &= {*layout.file_names, *layout.manifest_names}
    for name in sorted(there):
        raise FileExistsError(errno.EEXIST, f"expected a new place, found {name!r}", str(directory))
    # To the real one: what is written beside it must be where links and names in it lead.
    layout.format.write(layout, directory.resolve(strict=True))
    return path


@contextlib.contextmanager
def shards_dir(layout: Layout) -> Iterator[Path]:
    """Write a sample directory in a temporary place, yield its path, and remove it at the end.

    For use inside a property test, where a fixture would be shared by all examples. A layout with
    unreadable shards is unreadable for root too, inside the context (`without_root_override`).

    Args:
        layout: What to write. The path ends in its ``folder``; of a checkpoint it is the prefix.

    Example:
        >>> with shards_dir(Layout(n_shards=3, missing=[1])) as path:
        ...     sorted(os.listdir(path))
        ['acts000000.bin', 'acts000002.bin', 'metadata.json', 'shards.json']
    """
    with (
        tempfile.TemporaryDirectory(prefix="shardproof-") as base,
        writer(lambda: Path(base)) as write,
    ):
        yield write(layout)


@contextlib.contextmanager
def writer(
    new_base: Callable[[], Path], *, drop_root_override: bool = True
) -> Iterator[Callable[..., Path]]:
    """Yield what writes layouts, anew or into a directory; restore all modes at the end."""
    with contextlib.ExitStack() as stack:

        def write(layout: Layout, to: str | os.PathLike[str] | None = None) -> Path:
            base = new_base() if to is None else Path(to)
            # All of it: some states, and tests, put files beside the format's folder too. A slash
            # follows a link: only a directory that was given may be one.
            stack.callback(restore_modes, os.path.abspath(base) + ("" if to is None else os.sep))
            if drop_root_override and layout.is_unreadable:
                stack.enter_context(without_root_override())
                _skip_if_all_is_readable()
            return write_layout(layout, base / (layout.folder if to is None else layout.prefix))

        yield write


def shards_dir_maker(
    new_base: Callable[[], Path], *, drop_root_override: bool = True
) -> Iterator[MakeShardsDir]:
    """Yield what the fixtures give; see `writer`."""
    with writer(new_base, drop_root_override=drop_root_override) as write:
        yield lambda n_shards=3, **keywords: write(layout_of_maker(n_shards, **keywords))


def layout_of_maker(n_shards: int, **keywords: Any) -> Layout:
    """Return the layout that is meant by the arguments of `MakeShardsDir`."""
    said = {"n_shards": n_shards, **keywords}
    aliases = {f"{word}_shards": word for word in ("missing", "empty", "unreadable", "directory")}
    return layout_of("make_shards_dir", said.pop("format", "saev"), said, **aliases)


def restore_modes(path: str | os.PathLike[str]) -> None:
    """Give the owner all modes back below a directory, and let threads go that wait at a pipe."""
    try:
        if not stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode):
            return
    except (FileNotFoundError, NotADirectoryError):
        return
    _allow(path, 0o700)
    with os.scandir(path) as entries:
        found = list(entries)
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            restore_modes(entry.path)
        else:
            _allow(entry.path, 0o600)
            if stat.S_ISFIFO(os.stat(entry.path, follow_symlinks=False).st_mode):
                os.close(os.open(entry.path, os.O_RDWR | os.O_NONBLOCK))  # a writer, for a moment


def _allow(path: str | os.PathLike[str], bits: int) -> None:
    # A symbolic link has all bits itself, so it is left alone.
    mode = stat.S_IMODE(os.stat(path, follow_symlinks=False).st_mode)
    if mode & bits != bits:
        os.chmod(path, mode | bits)


# linux/capability.h: with version 3 the kernel reads and writes two blocks of three 32-bit sets.
_VERSION_3 = 0x20080522
_BOTH = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
_EFFECTIVE = 0  # index, in the first block, of the set that the kernel consults


@contextlib.contextmanager
def without_root_override() -> Iterator[None]:
    """Let ``chmod 0`` keep root out of a file, for as long as the context lasts.

    Root reads every file because of two capabilities, CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    They are taken out of the calling thread's effective set, and put back on leaving the context,
    which must happen in the same thread. Threads started inside inherit the lack of them; threads
    that run already keep them.

    For a user without these capabilities nothing changes, nor on systems other than Linux.
    `os.access` is no witness: it asks for the real user, and says True.

    Raises:
        OSError: The kernel refused.

    Example:
        >>> with without_root_override():
        ...     open(unreadable).close()
        Traceback (most recent call last):
        PermissionError: [Errno 13] Permission denied: ...
    """
    dropped = _change(lambda effective: effective & ~_BOTH) & _BOTH
    try:
        yield
    finally:
        _change(lambda effective: effective | dropped)


def _change(change: Callable[[int], int]) -> int:
    """Change the effective set of the calling thread, and return what it was."""
    libc = _libc()
    if libc is None:
        return 0
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)  # 0: the calling thread
    blocks = (ctypes.c_uint32 * 6)()
    _raise_if(libc.capget(header, blocks), "capget")
    before = blocks[_EFFECTIVE]
    blocks[_EFFECTIVE] = change(before)
    if blocks[_EFFECTIVE] != before:
        _raise_if(libc.capset(header, blocks), "capset")
    return before


def _skip_if_all_is_readable() -> None:
    with tempfile.NamedTemporaryFile() as file, contextlib.suppress(PermissionError):
        os.fchmod(file.fileno(), 0)
        open(file.name).close()
        raise unittest.SkipTest("root reads every file on this system: test as another user")


def _raise_if(failed: int, name: str) -> None:
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


@functools.cache
def _libc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "capset") else None
