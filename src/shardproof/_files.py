"""Write whole or not at all; sweep leftovers.

The only module that renames, fsyncs or unlinks. The order is the one that rename(2) and fsync(2)
ask for: unique temporary file in the target's own directory, write, fsync, close, replace, fsync
the directory. A reader sees the old bytes or the new ones; after a crash so does the next run.
"""

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import cast

__all__ = [
    "aside_name",
    "begin_to_sync",
    "being_written",
    "is_alive",
    "make_directories",
    "move",
    "move_aside",
    "move_new",
    "move_whole",
    "publish",
    "remove",
    "remove_empty",
    "remove_tree",
    "rewrite",
    "sweep_leftovers",
    "sync",
    "write_whole",
]

# What link(2) answers where there are no hard links, or no more of them.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}

_MAX_NAME_BYTES = 255  # NAME_MAX: limits.h(0p)
_LEFTOVER = re.compile(r"\.shardproof-(?P<host>[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{16}\.tmp")


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Make ``path`` hold ``data``, or leave it as it was.

    Raises:
        OSError: It could not be written; ``path`` is as before and nothing is left beside it. A
            failed fsync is final: a retry may succeed and the data be lost all the same (fsync(2)).
    """
    directory = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(directory, _temporary_name())
    try:
        _write_and_sync(temporary, data)
        os.replace(temporary, path)
    except BaseException:
        _unlink_if_there(temporary)
        raise
    _sync_directory(directory)


@contextlib.contextmanager
def being_written(path: str | os.PathLike[str], *, sync: bool = True) -> Iterator[int]:
    """Yield the descriptor of a temporary file that gets the name ``path`` when the context ends.

    If it ends by an exception, the temporary file goes, and ``path`` is as it was. Without ``sync``
    that holds until a power cut: for what nobody believes after one.
    """
    directory = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(directory, _temporary_name())
    try:
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            yield fd
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        _unlink_if_there(temporary)
        raise
    if sync:
        _sync_directory(directory)


def move_aside(path: str | os.PathLike[str]) -> str | None:
    """Give a bad file a name that no pattern for shards matches; None if there is none.

    Returns:
        Its new path, ``<path>.bad-<8 hexadecimal digits>``.
    """
    directory, name = os.path.split(os.path.abspath(path))
    aside = os.path.join(directory, aside_name(name))
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    _sync_directory(directory)
    return aside


def aside_name(name: str) -> str:
    """Return a name for a bad file, of which the old one is the beginning."""
    kept = os.fsencode(name)[: _MAX_NAME_BYTES - 13].decode(errors="ignore")
    return f"{kept}.bad-{secrets.token_hex(4)}"


def publish(path: str | os.PathLike[str], data: bytes) -> bool:
    """Make ``path`` hold ``data`` if nothing is there; of several who try, one succeeds.

    By a hard link, which is atomic on NFS too, where its answer may be lost: so the count of links
    says whether it was made (open(2), on O_EXCL). Where there are no hard links, by O_EXCL, and
    others may see the file before all its bytes are there.

    Returns:
        Whether this call made it.

    Raises:
        OSError: It could not be written.
    """
    directory = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(directory, _temporary_name())
    try:
        _write_and_sync(temporary, data)
        is_made = _link(temporary, path)
        if is_made is None:
            is_made = _write_new(path, data)
    finally:
        _unlink_if_there(temporary)
    _sync_directory(directory)
    return is_made


def _link(temporary: str, path: str | os.PathLike[str], dir_fd: int | None = None) -> bool | None:
    """Whether the link was made; None where the file system has none."""
    try:
        os.link(temporary, path, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        if os.stat(temporary).st_nlink == 2:
            return True
        if error.errno == errno.EEXIST:
            return False
        if error.errno in _NO_LINKS:
            return None
        raise
    return True


def _write_new(path: str | os.PathLike[str], data: bytes) -> bool:
    try:
        _write_and_sync(path, data)
    except FileExistsError:
        return False
    return True


def rewrite(fd: int, data: bytes) -> None:
    """Put ``data`` in the place of the same number of bytes, for a file that only shows life."""
    os.pwrite(fd, data, 0)
    os.fsync(fd)


def begin_to_sync(fd: int) -> None:
    """Let the disk begin with what was written until now, so that `sync` has less to wait for."""
    start = _sync_file_range()
    if start is not None:
        start(fd, 0, 0, 2)  # all of it, SYNC_FILE_RANGE_WRITE: sync_file_range(2)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """The system call, where there is one."""
    import ctypes  # noqa: PLC0415 - only large writes need it

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast("Callable[[int, int, int, int], int]", function)


def sync(fd: int) -> None:
    """Bring what was written to the disk; if that fails, the file is lost for good (fsync(2))."""
    os.fsync(fd)


def move_whole(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file that was synced its final name, in place of what has it, for good."""
    os.replace(source, target)
    _sync_directory(os.path.dirname(os.path.abspath(target)))


def move_new(source: str, name: str, *, dir_fd: int) -> bool:
    """Give a file that was synced its final name if nothing has it, for good.

    Of several who try, one succeeds; where there are no hard links, perhaps more.

    Args:
        source: Its path.
        name: Its new name, in the directory of ``dir_fd``.
        dir_fd: A descriptor of that directory, on the same file system.

    Returns:
        Whether it has the name now.
    """
    is_made = _link(source, name, dir_fd)
    if is_made is None:
        is_made = not _is_there(name, dir_fd)
        if is_made:
            os.rename(source, name, dst_dir_fd=dir_fd)
    if is_made:
        _unlink_if_there(source)
        os.fsync(dir_fd)
    return is_made


def _is_there(name: str, dir_fd: int) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def move(
    source: str, target: str, *, source_fd: int | None = None, target_fd: int | None = None
) -> None:
    """Rename, relative to descriptors of directories; to be taken for done it need not be synced.

    Raises:
        FileNotFoundError: What is to be moved is gone, or the directory where it is to go.
    """
    os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)


def remove_empty(path: str) -> bool:
    """Remove a directory of this package unless something is in it; say whether it is gone."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True


def make_directories(path: str | os.PathLike[str]) -> None:
    """Make a directory and those above it, each of which is there after a power cut too."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_directories(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    _sync_directory(parent)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file of this package, if it is there."""
    _unlink_if_there(path)


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory of this package with all that is in it; a link in it is not followed."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)


def _write_and_sync(path: str | os.PathLike[str], data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def _unlink_if_there(path: str | os.PathLike[str]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temporary_name() -> str:
    return f".shardproof-{_host()}-{os.getpid()}-{secrets.token_hex(8)}.tmp"


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def sweep_leftovers(
    directory: str | os.PathLike[str], names: Iterable[str] | None = None
) -> list[str]:
    """Remove temporary files of this package whose writer is dead; return their names.

    Only a writer of this host can be known to be dead; another host's leftovers stay.

    Args:
        directory: Where.
        names: What is there, for who has just looked.
    """
    leftovers = sorted(_dead_leftovers(os.listdir(directory) if names is None else names))
    for name in leftovers:
        _unlink_if_there(os.path.join(directory, name))
    return leftovers


def _dead_leftovers(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        match = _LEFTOVER.fullmatch(name)
        if match and match["host"] == _host() and not is_alive(int(match["pid"])):
            yield name


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number; one that can't be asked is taken for alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
