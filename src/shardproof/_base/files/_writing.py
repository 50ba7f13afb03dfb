"""Write files whole, or not at all.

The order is the one that rename(2) and fsync(2) ask for: unique temporary file in the target's own
directory, write, fsync, close, replace, fsync the directory. A reader sees the old bytes or the new
ones; after a crash so does the next run. A failed fsync is final for a file: a retry may succeed,
and the data be lost all the same.
"""

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Iterator

from shardproof._base.files import _syncing
from shardproof._base.files._naming import discard, move_new, temporary_name
from shardproof._base.files._syncing import as_unsynced, opened_directory
from shardproof._base.opening import telling_where


def write_whole(path: str | os.PathLike[str], data: bytes, *, dir_fd: int | None = None) -> None:
    """Make ``path`` hold ``data``, or leave it as it was; ``dir_fd`` is its directory, if given."""
    with being_written(path, dir_fd=dir_fd) as fd:
        _fill(fd, path, data)


def publish(path: str | os.PathLike[str], data: bytes) -> bool:
    """Make ``path`` hold ``data`` if nothing is there; say so. Of several that try, one does."""
    # After an interrupt the file may be there, and its maker knows it by what is in it.
    with contextlib.suppress(FileExistsError):
        with being_written(path, replace=False) as fd:
            _fill(fd, path, data)
        return True
    return False


def _fill(fd: int, path: str | os.PathLike[str], data: bytes) -> None:
    with telling_where(path), open(fd, "wb", closefd=False) as file:
        file.write(data)


def write_at(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all bytes from an offset on: one call may take fewer (write(2))."""
    left = memoryview(data)
    while left:
        n = os.pwrite(fd, left, offset)
        left, offset = left[n:], offset + n


@contextlib.contextmanager
def being_written(
    path: str | os.PathLike[str],
    temporary: str | os.PathLike[str] | None = None,
    *,
    replace: bool = True,
    sync: bool = True,
    dir_fd: int | None = None,
) -> Iterator[int]:
    """Yield a new file that gets the name ``path`` at the end; unsynced, until a power cut."""
    # Without ``replace``, a FileExistsError if something has the name by then. With ``dir_fd``, of
    # the directory, it is replaced there, whatever that is called by then.
    # Whoever removes the temporary name ends the write: a FileNotFoundError, and `path` as it was.
    directory, name = os.path.split(os.path.abspath(path))
    above = directory if dir_fd is None else ""
    temporary = temporary or os.path.join(above, temporary_name())
    try:
        with _new_file(temporary, path, sync, dir_fd) as fd:
            yield fd
            made = os.fstat(fd)
        if replace:
            with telling_where(path):
                target = os.path.join(above, name)
                os.replace(temporary, target, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
        else:
            if not os.path.samestat(os.lstat(temporary), made):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), temporary)
            with opened_directory(directory) as at:
                if not move_new(os.fspath(temporary), name, dir_fd=at):
                    number = errno.EEXIST
                    raise FileExistsError(number, os.strerror(number), f"{directory}/{name}")
    except BaseException:
        discard(temporary, dir_fd=dir_fd)
        raise
    if replace and sync:
        with as_unsynced(f"{directory}/{name}"), opened_directory(directory, dir_fd) as at:
            _syncing.sync(at)


@contextlib.contextmanager
def _new_file(
    temporary: str | os.PathLike[str],
    path: str | os.PathLike[str],
    sync: bool,
    dir_fd: int | None,
) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with telling_where(path):
        fd = os.open(temporary, flags, 0o666, dir_fd=dir_fd)
    try:
        yield fd
        if sync:
            with telling_where(path):
                _syncing.sync(fd)
    finally:
        with telling_where(path):
            os.close(fd)


def nameless() -> int:
    """Return the descriptor of a new file that has no name, in memory where the system can."""
    if sys.platform == "linux":
        fd = os.memfd_create("shardproof")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    return fd
