"""Write whole or not at all; sweep leftovers.

The only module that renames, fsyncs or unlinks. The order is the one that rename(2) and fsync(2)
ask for: unique temporary file in the target's own directory, write, fsync, close, replace, fsync
the directory. A reader sees the old bytes or the new ones; after a crash so does the next run.

Where only the last step fails, what was written is there, and that is said: `UnsyncedError`. Any
other error, or an interrupt, ends a write before its name is given, or is over what is whole.
"""

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from shardproof._base.liveness import is_gone, process_of, tag_of, this_process
from shardproof._base.opening import is_directory, is_there, mode_of
from shardproof.errors import UnsyncedError

Inode = tuple[int, int]
"""Which file it is, whatever its name."""

_ASIDE = re.compile(r".*\.bad-[0-9a-f]{8}", re.DOTALL)

# What link(2) answers where there are no hard links, or no more of them.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}

# What renameat2(2) answers where the kernel, its filter of calls, or the file system lacks it.
_NO_SUCH_CALL = {errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENOTSUP}
_RENAME_NOREPLACE = 1

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC

_MAX_NAME_BYTES = 255  # NAME_MAX: limits.h(0p)

_LEFTOVER = re.compile(r"\.shardproof-(?P<tag>[0-9a-f]{16}-[0-9]+-[0-9]+)-[0-9a-f]{16}\.tmp")


def write_whole(path: str | os.PathLike[str], data: bytes, *, dir_fd: int | None = None) -> None:
    """Make ``path`` hold ``data``, or leave it as it was.

    With a descriptor of its directory it is written there, wherever its path leads by now.

    Raises:
        UnsyncedError: ``path`` holds ``data``, but may not after a power cut.
        OSError: It could not be written; ``path`` is as before and nothing is left beside it. A
            failed fsync is final: a retry may succeed and the data be lost all the same (fsync(2)).
    """
    directory, name = os.path.split(os.path.abspath(path))
    given = None if dir_fd is None else contextlib.nullcontext(dir_fd)
    with given or _opened_directory(directory) as at:
        temporary = _temporary_name()
        try:
            with telling_where(path):
                _fill(os.open(temporary, _NEW, 0o666, dir_fd=at), path, data)
                os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            _discard(temporary, dir_fd=at)
            raise
        with _told_as_unsynced(lambda: os.path.join(directory, name)):
            sync(at)


def inode_of(status: os.stat_result) -> Inode:
    """Return which file was looked at."""
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def being_written(path: str | os.PathLike[str], *, sync: bool = True) -> Iterator[int]:
    """Yield the descriptor of a temporary file that gets the name ``path`` when the context ends.

    If it ends by an exception, the temporary file goes, and ``path`` is as it was. Without ``sync``
    that holds until a power cut: for files that are not trusted after one. Raises as `write_whole`.
    """
    directory = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(directory, _temporary_name())
    try:
        with _new_file(temporary, path, sync) as fd:
            yield fd
        os.replace(temporary, path)
    except BaseException:
        _discard(temporary)
        raise
    if sync:
        _sync_name(path)


@contextlib.contextmanager
def telling_where(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in an error of a call that has but descriptors: on a full disk, which one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and not os.path.isabs(str(error.filename)):
            error.filename = os.fspath(path)
        raise


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


def move_aside(path: str | os.PathLike[str]) -> str | None:
    """Give a bad file a name that no pattern for shards matches; None if there is none.

    Returns:
        Its new path, ``<path>.bad-<8 hexadecimal digits>``.

    Raises:
        UnsyncedError: It has the new name, but may have the old one after a power cut.
        OSError: It could not be moved.
    """
    directory, name = os.path.split(os.path.abspath(path))
    aside = os.path.join(directory, aside_name(name))
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    _sync_name(aside)
    return aside


def aside_name(name: str) -> str:
    """Return a name for a bad file, of which the old one is the beginning."""
    kept = os.fsencode(name)[: _MAX_NAME_BYTES - 13].decode(errors="ignore")
    return f"{kept}.bad-{secrets.token_hex(4)}"


def is_aside(name: str) -> bool:
    """Whether a name is one that `move_aside` gives."""
    return _ASIDE.fullmatch(name) is not None


def publish(path: str | os.PathLike[str], data: bytes) -> bool:
    """Make ``path`` hold ``data`` if nothing is there; of several processes that try, one succeeds.

    By a hard link, which is atomic on NFS too, where its answer may be lost: so the count of links
    says whether it was made (open(2), on O_EXCL). Where there are no hard links, by a rename that
    replaces nothing (renameat2(2)). Where the system lacks that, too, by O_EXCL, and others may see
    the file before all its bytes are there: a kill may leave it so.

    Returns:
        Whether this call made it.

    Raises:
        UnsyncedError: This call made it, but it may be gone after a power cut.
        OSError: It could not be written. Nothing that this call made is at ``path``: so it is
            after an interrupt, too.
    """
    directory = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(directory, _temporary_name())
    made = None
    try:
        made = _fill(os.open(temporary, _NEW, 0o666), path, data)
        is_made = _link(temporary, path)
        if is_made is None:
            is_made = _renamed(temporary, os.path.abspath(path))
        _discard(temporary)
        if is_made is None:
            made = _write_new(path, data)
            is_made = made is not None
        if is_made:
            _sync_name(path)
    except UnsyncedError:
        raise
    except BaseException:
        withdraw(path, made)
        _discard(temporary)
        raise
    return is_made


def withdraw(path: str | os.PathLike[str], made: Inode | None) -> None:
    """Remove a file as far as that goes, if it is this one and no other."""
    with contextlib.suppress(OSError):
        if made is not None and inode_of(os.lstat(path)) == made:
            os.unlink(path)


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


def _write_new(path: str | os.PathLike[str], data: bytes) -> Inode | None:
    """Return which file was made; None where something is there."""
    try:
        fd = os.open(path, _NEW, 0o666)
    except FileExistsError:
        return None
    try:
        return _fill(fd, path, data)
    except BaseException:
        _discard(path)
        raise


def rewrite(fd: int, data: bytes) -> None:
    """Put ``data`` in the place of the same number of bytes, for a file that only shows life."""
    os.pwrite(fd, data, 0)
    os.fsync(fd)


def begin_to_sync(fd: int) -> None:
    """Begin to bring what was written to the disk, so that `sync` has less to wait for."""
    start = _sync_file_range()
    if start is not None:
        start(fd, 0, 0, 2)  # all of it, SYNC_FILE_RANGE_WRITE: sync_file_range(2)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """Return the system call, where there is one."""
    import ctypes  # noqa: PLC0415 - only large writes need it

    try:
        function = ctypes.CDLL(None).sync_file_range
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return cast("Callable[[int, int, int, int], int]", function)


def sync(fd: int) -> None:
    """Bring what was written to the disk; if that fails, the file is lost for good (fsync(2)).

    Some file systems can't do that with a directory (FUSE, of networks) and say EINVAL: names hold
    there as well as they do. No other error is passed over, nor any of a file.
    """
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL or not stat.S_ISDIR(os.fstat(fd).st_mode):
            raise


def move_whole(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file that was synced its final name, in place of what has it, for good.

    Raises:
        UnsyncedError: It has the name, but may not after a power cut.
        OSError: It could not be moved; all is as before.
    """
    os.replace(source, target)
    _sync_name(target)


def move_new(source: str, name: str, *, dir_fd: int) -> bool:
    """Give a file that was synced its final name if nothing has it, for good.

    Of several processes that try, one succeeds; perhaps more where there are no hard links, and the
    system can't rename without replacing.

    The name is one in the directory of ``dir_fd``, on the same file system.

    Returns:
        Whether it has the name now.

    Raises:
        UnsyncedError: It has the name, but may not after a power cut.
        OSError: It could not be moved.
    """
    is_made = _link(source, name, dir_fd)
    if is_made is None:
        is_made = _rename_new(source, name, dir_fd)
    if is_made:
        _discard(source)
        with _told_as_unsynced(lambda: _path_in(dir_fd, name)):
            sync(dir_fd)
    return is_made


def _path_in(dir_fd: int, name: str) -> str:
    """Return the path of a file in a directory that is open; its name where /proc does not tell."""
    with contextlib.suppress(OSError):
        return os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
    return name


def _rename_new(source: str, name: str, dir_fd: int) -> bool:
    """Whether it was renamed; in two steps where the system can't do it in one."""
    is_renamed = _renamed(source, name, dir_fd)
    if is_renamed is None:
        if mode_of(name, dir_fd=dir_fd):
            return False
        os.rename(source, name, dst_dir_fd=dir_fd)
        return True
    return is_renamed


def _renamed(source: str, name: str, dir_fd: int = -1) -> bool | None:
    """Whether it was renamed, to a name that was free; None where the system can't do that."""
    number = _renaming()(source, name, dir_fd)
    if number in _NO_SUCH_CALL:
        return None
    if number not in {0, errno.EEXIST}:
        raise OSError(number, os.strerror(number), source, None, name)
    return not number


@functools.cache
def _renaming() -> Callable[[str, str, int], int]:
    """Return what renames without replacing, and answers with the errno; 0 if it did."""
    import ctypes  # noqa: PLC0415 - only file systems without hard links need it

    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return lambda *_: errno.ENOSYS
    number, text = ctypes.c_int, ctypes.c_char_p
    function.argtypes = (number, text, number, text, ctypes.c_uint)

    def rename(source: str, name: str, dir_fd: int) -> int:
        paths = os.fsencode(os.path.abspath(source)), dir_fd, os.fsencode(name)
        return ctypes.get_errno() if function(-1, *paths, _RENAME_NOREPLACE) else 0

    return rename


def move(
    source: str, target: str, *, source_fd: int | None = None, target_fd: int | None = None
) -> None:
    """Rename, relative to descriptors of directories; it need not be synced to be done."""
    os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)


def remove_empty(path: str, *, dir_fd: int | None = None) -> bool:
    """Remove a directory of this package unless something is in it; say whether it is gone."""
    try:
        os.rmdir(path, dir_fd=dir_fd)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True


def make_directories(path: str | os.PathLike[str]) -> None:
    """Make a directory and those above it, each of which is there after a power cut too.

    Raises:
        UnsyncedError: One is there that others made or use, but may be gone after a power cut;
            those below it were not made.
        NotADirectoryError: Something else is in the way.
        OSError: One could not be looked at, made or synced, and is not there, nor those below it.
    """
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
            _sync_name(directory)
            continue
        # What can't be synced is removed: the next attempt would take it for one that is there for
        # good; and to sync it again proves nothing (fsync(2)).
        try:
            with telling_where(directory):
                _sync_parent(directory)
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


def remove(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Remove a file of this package, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)


def remove_if(path: str, is_it: Callable[[os.stat_result], bool]) -> bool:
    """Remove a file of this package if it is the one that is meant; say whether it was.

    It loses its name before it is looked at, so what came there meanwhile is not removed for it.
    """
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, _temporary_name())
    with contextlib.suppress(FileNotFoundError), _opened_directory(directory) as dir_fd:
        os.rename(path, temporary)
        try:
            is_removed = is_it(os.lstat(temporary))
        except BaseException:
            _rename_new(temporary, name, dir_fd)
            raise
        # It gets its name again, unless a newer one has that by now.
        if is_removed or not _rename_new(temporary, name, dir_fd):
            _discard(temporary)
        return is_removed
    return False


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory of this package with all that is in it; a link in it is not followed.

    Another process may remove it too.
    """
    top = os.fspath(path)

    # As `shutil.rmtree` does of itself from Python 3.13 on: pass over what is gone below.
    def pass_over(_call: object, path: str, raised: tuple[object, Any, object]) -> None:
        error = raised[1]
        if path == top or not isinstance(error, FileNotFoundError):
            error.filename = path
            raise error

    try:
        if sys.version_info >= (3, 13):
            shutil.rmtree(top)
        else:
            shutil.rmtree(top, onerror=pass_over)
    except FileNotFoundError:
        if is_there(top):
            raise


@contextlib.contextmanager
def passing_directory(prefix: str, within: str | os.PathLike[str] | None = None) -> Iterator[str]:
    """Yield a new directory, which goes with all that is in it when the context ends.

    It lies ``within`` another one; by default where the system has such directories.
    """
    directory = tempfile.mkdtemp(prefix=prefix, dir=within)
    try:
        yield directory
    finally:
        try:
            remove_tree(directory)
        except OSError:  # nothing else removes it, and what failed once may work now
            remove_tree(directory)


def nameless() -> int:
    """Return the descriptor of a new file that has no name, in memory where the system can."""
    if sys.platform == "linux":
        fd = os.memfd_create("shardproof")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    return fd


def _fill(fd: int, path: str | os.PathLike[str], data: bytes) -> Inode:
    """Write a file that is to have a path to the disk, and close it."""
    with telling_where(path), open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
        return inode_of(os.fstat(fd))


def _discard(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> bool:
    """Remove a file as far as that goes, and say whether; what stays is swept another time."""
    with contextlib.suppress(OSError):
        remove(path, dir_fd=dir_fd)
        return True
    return False


def _sync_name(path: str | os.PathLike[str]) -> None:
    """Bring a name that was given to the disk."""
    path = os.path.abspath(path)
    with _told_as_unsynced(lambda: path):
        _sync_parent(path)


def _sync_parent(path: str) -> None:
    with _opened_directory(os.path.dirname(path)) as fd:
        sync(fd)


@contextlib.contextmanager
def _opened_directory(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _told_as_unsynced(path: Callable[[], str]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnsyncedError(path(), error.errno) from error


def _temporary_name() -> str:
    return f".shardproof-{tag_of(this_process()) or 'unknown'}-{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a name is that of a temporary file of this package, of any process."""
    return _LEFTOVER.fullmatch(name) is not None


def sweep_leftovers(
    directory: str | os.PathLike[str] | int, names: Iterable[str] | None = None
) -> list[str]:
    """Remove temporary files of this package whose writer is dead; return their names.

    Only a writer that runs or ran here can be known to be dead: on this host, since it was started,
    and among the processes that this one can see. What others left stays, and so does what a
    version of this package left whose names don't tell. What can't be removed stays too, as another
    user's in a directory like ``/tmp``: no work fails by what another user has left.

    Args:
        directory: Where; or a descriptor of it, wherever its path leads by now.
        names: What is there, where that is known.
    """
    leftovers = sorted(_dead_leftovers(os.listdir(directory) if names is None else names))
    if isinstance(directory, int):
        return [name for name in leftovers if _discard(name, dir_fd=directory)]
    return [name for name in leftovers if _discard(os.path.join(directory, name))]


def _dead_leftovers(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        match = _LEFTOVER.fullmatch(name)
        if match and is_gone(process_of(match["tag"])):
            yield name


@contextlib.contextmanager
def being_published(
    path: str | os.PathLike[str],
    temporary: str | os.PathLike[str] | None = None,
    *,
    sync: bool = True,
) -> Iterator[int]:
    """Yield the descriptor of a new file that gets the name ``path`` if nothing has it then.

    If the temporary name is removed meanwhile, the file never gets it.

    Args:
        path: Its name when the context ends.
        temporary: Its name until then, in the same directory; by default one that is swept.
        sync: Whether its bytes are on the disk before it has the name.

    Raises:
        FileExistsError: Something has the name, which is as it was.
        FileNotFoundError: The temporary name was removed.
    """
    directory, name = os.path.split(os.path.abspath(path))
    temporary = temporary or os.path.join(directory, _temporary_name())
    try:
        with _new_file(temporary, path, sync) as fd:
            yield fd
        _name_new(os.fspath(temporary), directory, name)
    finally:
        _discard(temporary)


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
