"""Bring to the disk what was written, and names that were given (fsync(2))."""

import contextlib
import errno
import fcntl
import functools
import os
import stat
from collections.abc import Callable, Iterator
from typing import cast

from shardproof._base.opening import is_directory, telling_where
from shardproof.errors import UnsyncedError

# Of macOS, whose fsync(2) may leave bytes in the disk's own memory; and where it has no such call.
_FULLSYNC = getattr(fcntl, "F_FULLFSYNC", None)
_NO_FULLSYNC = {errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL}


def sync(fd: int) -> None:
    """Bring what was written to the disk; if that fails, the file is lost for good (fsync(2))."""
    # Some file systems can't do that with a directory (FUSE, of networks) and say EINVAL: names
    # hold there as well as they do. No other error is passed over, nor any of a file.
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL or not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise
    try:
        if _FULLSYNC is not None:
            fcntl.fcntl(fd, _FULLSYNC)
    except OSError as error:
        if error.errno not in _NO_FULLSYNC:
            raise


def begin_to_sync(fd: int) -> None:
    """Begin to bring what was written to the disk, so that `sync` has less to wait for."""
    _sync_file_range()(fd, 0, 0, 2)  # all of it, SYNC_FILE_RANGE_WRITE: sync_file_range(2)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int]:
    """Return the system call; where there is none, what does nothing."""
    import ctypes  # noqa: PLC0415 - only large writes need it

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return lambda *_: 0
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast("Callable[[int, int, int, int], int]", function)


def sync_name(path: str | os.PathLike[str]) -> None:
    """Bring a name that was given to the disk."""
    path = os.path.abspath(path)
    with as_unsynced(path), opened_directory(os.path.dirname(path)) as fd:
        sync(fd)


def sync_names(directory: str) -> None:
    """Bring the names in a directory to the disk."""
    with telling_where(directory), opened_directory(directory) as fd:
        sync(fd)


@contextlib.contextmanager
def opened_directory(path: str, dir_fd: int | None = None) -> Iterator[int]:
    """Yield the descriptor of a directory, or that which it has already."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) if dir_fd is None else dir_fd
    try:
        yield fd
    finally:
        if dir_fd is None:
            with contextlib.suppress(OSError):  # nothing was written by it
                os.close(fd)


@contextlib.contextmanager
def as_unsynced(path: str) -> Iterator[None]:
    """Say of a failed call that what was written is there, but may not be after a power cut."""
    try:
        yield
    except OSError as error:
        raise UnsyncedError(path, error.errno) from error


def make_directories(path: str | os.PathLike[str]) -> None:
    """Make a directory and those above it, each of which is there after a power cut too."""
    missing: list[str] = []
    above = os.path.abspath(path)
    while not is_directory(above) and above not in missing[-1:]:
        missing.append(above)
        above = os.path.dirname(above)
    for directory in reversed(missing):
        try:
            os.mkdir(directory)
        except FileExistsError:
            if not is_directory(directory):
                number = errno.ENOTDIR
                raise NotADirectoryError(number, os.strerror(number), directory) from None
            sync_name(directory)
            continue
        # What can't be synced is removed: the next attempt would take it for one that is there for
        # good; and to sync it again proves nothing (fsync(2)).
        try:
            with telling_where(directory), opened_directory(os.path.dirname(directory)) as fd:
                sync(fd)
        except OSError as error:
            if not _is_taken_back(directory):
                raise UnsyncedError(directory, error.errno) from error
            raise
        except BaseException:
            _is_taken_back(directory)
            raise


def _is_taken_back(directory: str) -> bool:
    with contextlib.suppress(OSError):  # others may have put something into it
        os.rmdir(directory)
        return True
    return False
