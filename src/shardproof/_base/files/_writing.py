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

from shardproof._base.files._naming import move_new
from shardproof._base.files._removing import discard, temporary_name
from shardproof._base.files._syncing import (
    as_unsynced,
    opened_directory,
    sync,
    sync_name,
    telling_where,
)

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def write_whole(path: str | os.PathLike[str], data: bytes, *, dir_fd: int | None = None) -> None:
    """Make ``path`` hold ``data``, or leave it as it was; ``dir_fd`` is its directory, if given."""
    directory, name = os.path.split(os.path.abspath(path))
    given = None if dir_fd is None else contextlib.nullcontext(dir_fd)
    with given or opened_directory(directory) as at:
        temporary = temporary_name()
        try:
            with telling_where(path):
                _fill(os.open(temporary, _NEW, 0o666, dir_fd=at), path, data)
                os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            discard(temporary, dir_fd=at)
            raise
        with as_unsynced(lambda: os.path.join(directory, name)):
            sync(at)


@contextlib.contextmanager
def being_written(
    path: str | os.PathLike[str],
    temporary: str | os.PathLike[str] | None = None,
    *,
    sync: bool = True,
) -> Iterator[int]:
    """Yield a new file that gets the name ``path`` at the end; unsynced, until a power cut."""
    # Whoever removes the temporary name ends the write: a FileNotFoundError, and `path` as it was.
    directory = os.path.dirname(os.path.abspath(path))
    temporary = temporary or os.path.join(directory, temporary_name())
    try:
        with _new_file(temporary, path, sync) as fd:
            yield fd
        os.replace(temporary, path)
    except BaseException:
        discard(temporary)
        raise
    if sync:
        sync_name(path)


def publish(path: str | os.PathLike[str], data: bytes) -> bool:
    """Make ``path`` hold ``data`` if nothing is there; say so. Of several that try, one does."""
    # After an interrupt the file may be there, and its maker knows it by what is in it.
    with contextlib.suppress(FileExistsError):
        with being_published(path) as fd, open(fd, "wb", closefd=False) as file:
            file.write(data)
        return True
    return False


@contextlib.contextmanager
def being_published(
    path: str | os.PathLike[str],
    temporary: str | None = None,
    *,
    sync: bool = True,
) -> Iterator[int]:
    """Yield a new file that gets the name ``path`` at the end; raise if something has it then."""
    # `FileNotFoundError` if others removed the temporary name.
    directory, name = os.path.split(os.path.abspath(path))
    temporary = temporary or os.path.join(directory, temporary_name())
    try:
        with _new_file(temporary, path, sync) as fd:
            yield fd
            made = os.fstat(fd)
        if not os.path.samestat(os.lstat(temporary), made):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), temporary)
        _name_new(temporary, directory, name)
    finally:
        discard(temporary)


# A function of its own: no handler, nor an outer `finally`, covers the line of an inner `try`.
def _name_new(source: str, directory: str, name: str) -> None:
    dir_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not move_new(source, name, dir_fd=dir_fd):
            path = os.path.join(directory, name)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    finally:
        with contextlib.suppress(OSError):  # nothing was written by it
            os.close(dir_fd)


@contextlib.contextmanager
def _new_file(
    temporary: str | os.PathLike[str], path: str | os.PathLike[str], sync: bool
) -> Iterator[int]:
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        yield fd
        if sync:
            with telling_where(path):
                os.fsync(fd)
    finally:
        with telling_where(path):
            os.close(fd)


def _fill(fd: int, path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file that is to have a path to the disk, and close it."""
    with telling_where(path), open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def nameless() -> int:
    """Return the descriptor of a new file that has no name, in memory where the system can."""
    if sys.platform == "linux":
        fd = os.memfd_create("shardproof")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    return fd
