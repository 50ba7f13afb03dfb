"""Give files their names, in one step; take them away, and sweep what was left.

In place of what has a name, or only where it is free.
"""

import contextlib
import errno
import fcntl
import functools
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from shardproof._base.files._syncing import as_unsynced, opened_directory, sync, sync_name
from shardproof._base.liveness import is_gone, process_of, tag_of, this_process
from shardproof._base.opening import MAX_NAME_BYTES, is_there, mode_of

_LEFTOVER = re.compile(r"\.shardproof-(?P<tag>[0-9a-f]{16}-[0-9]+-[0-9]+)-[0-9a-f]{16}\.tmp")
_ASIDE = re.compile(r".*\.bad-[0-9a-f]{8}", re.DOTALL)

# What link(2) answers where there are no hard links, or no more of them.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}

# What renameat2(2) answers where the kernel, its filter of calls, or the file system lacks it.
_NO_SUCH_CALL = {errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.ENOTSUP}


def move(
    source: str, target: str, *, source_fd: int | None = None, target_fd: int | None = None
) -> None:
    """Rename, relative to descriptors of directories; it need not be synced to be done."""
    os.rename(source, target, src_dir_fd=source_fd, dst_dir_fd=target_fd)


def move_whole(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file that was synced its final name, in place of what has it, for good."""
    os.replace(source, target)
    sync_name(target)


def move_new(source: str, name: str, *, dir_fd: int) -> bool:
    """Give a synced file its name in a directory, for good, if that is free; say whether it was."""
    is_made = True
    try:
        os.link(source, name, dst_dir_fd=dir_fd, follow_symlinks=False)
    except OSError as error:
        # It is atomic on NFS too, where its answer may be lost: so the count of links says whether
        # it was made (open(2), on O_EXCL).
        if os.stat(source).st_nlink != 2:
            if error.errno in _NO_LINKS:
                is_made = _rename_new(source, name, dir_fd)
            elif error.errno == errno.EEXIST:
                is_made = False
            else:
                raise
    if is_made:
        discard(source)
        with as_unsynced(_path_in(dir_fd, name)):
            sync(dir_fd)
    return is_made


def _path_in(dir_fd: int, name: str) -> str:
    """Return the path of a file in a directory that is open; its name where that is not told."""
    with contextlib.suppress(OSError):
        if command := getattr(fcntl, "F_GETPATH", None):  # of macOS
            path: bytes = fcntl.fcntl(dir_fd, command, bytes(1024))
            return os.path.join(os.fsdecode(path.rstrip(b"\0")), name)
        return os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
    return name


def move_aside(path: str | os.PathLike[str]) -> str | None:
    """Give a bad file a name that no pattern for shards matches, and return it; None of no file."""
    directory, name = os.path.split(os.path.abspath(path))
    aside = os.path.join(directory, aside_name(name))
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    sync_name(aside)
    return aside


def aside_name(name: str) -> str:
    """Return a name for a bad file, of which the old one is the beginning."""
    kept = os.fsencode(name)[: MAX_NAME_BYTES - 13].decode(errors="ignore")
    return f"{kept}.bad-{secrets.token_hex(4)}"


def is_aside(name: str) -> bool:
    """Whether a name is one that `move_aside` gives."""
    return _ASIDE.fullmatch(name) is not None


def remove_if(path: str, is_it: Callable[[os.stat_result], bool]) -> bool:
    """Remove a file of this package if it is the one that is meant; say whether it was."""
    # It loses its name before it is looked at, so what came there meanwhile is not removed for it;
    # and it is looked at before that, so what came long before keeps its name all the time.
    directory, name = os.path.split(path)
    temporary = os.path.join(directory, temporary_name())
    with contextlib.suppress(FileNotFoundError), opened_directory(directory) as dir_fd:
        if not is_it(os.lstat(path)):
            return False
        os.rename(path, temporary)
        try:
            is_removed = is_it(os.lstat(temporary))
        except BaseException:
            _rename_new(temporary, name, dir_fd)
            raise
        # It gets its name again, unless a newer one has that by now.
        if is_removed or not _rename_new(temporary, name, dir_fd):
            discard(temporary)
        return is_removed
    return False


def _rename_new(source: str, name: str, dir_fd: int) -> bool:
    """Whether it was renamed, to a name that was free; in two steps where one can't do it."""
    number = _renaming()(source, name, dir_fd)
    if number in _NO_SUCH_CALL:
        if mode_of(name, dir_fd=dir_fd):
            return False
        os.rename(source, name, dst_dir_fd=dir_fd)
        return True
    if number not in {0, errno.EEXIST}:
        raise OSError(number, os.strerror(number), source, None, name)
    return not number


@functools.cache
def _renaming() -> Callable[[str, str, int], int]:
    """Return what renames without replacing, and answers with the errno; 0 if it did."""
    import ctypes  # noqa: PLC0415 - only file systems without hard links need it

    library = ctypes.CDLL(None, use_errno=True)
    function, flag = getattr(library, "renameat2", None), 1  # RENAME_NOREPLACE
    if function is None:  # RENAME_EXCL of macOS
        function, flag = getattr(library, "renameatx_np", None), 4
    if function is None:
        return lambda *_: errno.ENOSYS
    number, text = ctypes.c_int, ctypes.c_char_p
    function.argtypes = (number, text, number, text, ctypes.c_uint)

    def rename(source: str, name: str, dir_fd: int) -> int:
        paths = os.fsencode(os.path.abspath(source)), dir_fd, os.fsencode(name)
        return ctypes.get_errno() if function(-1, *paths, flag) else 0

    return rename


def remove(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> None:
    """Remove a file of this package, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)


def discard(path: str | os.PathLike[str], *, dir_fd: int | None = None) -> bool:
    """Remove a file as far as that goes, and say whether; what stays is swept another time."""
    with contextlib.suppress(OSError):
        remove(path, dir_fd=dir_fd)
        return True
    return False


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


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory of this package with all that is in it; a link in it is not followed."""
    top = os.fspath(path)

    # As `shutil.rmtree` does of itself from Python 3.13 on: pass over what is gone below.
    def pass_over(_call: object, path: str, raised: tuple[object, Any, object]) -> None:
        error = raised[1]
        if path == top or not isinstance(error, FileNotFoundError):
            error.filename = path
            raise error

    try:
        shutil.rmtree(top, onerror=pass_over)
    except FileNotFoundError:
        if is_there(top):
            raise


def temporary_name() -> str:
    """Return a name for a file that is being written, which tells by which process."""
    return f".shardproof-{tag_of(this_process()) or 'unknown'}-{secrets.token_hex(8)}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a name is that of a temporary file of this package, of any process."""
    return _LEFTOVER.fullmatch(name) is not None


def sweep_leftovers(
    directory: str | os.PathLike[str] | int, names: Iterable[str] | None = None
) -> list[str]:
    """Remove temporary files of this package whose writer is surely dead; return their names."""
    # What writers of other hosts and namespaces left stays, and what can't be removed, as another
    # user's in a directory like /tmp: no work fails by what another user has left.
    leftovers = sorted(_dead_leftovers(os.listdir(directory) if names is None else names))
    if isinstance(directory, int):
        return [name for name in leftovers if discard(name, dir_fd=directory)]
    return [name for name in leftovers if discard(os.path.join(directory, name))]


def _dead_leftovers(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        match = _LEFTOVER.fullmatch(name)
        if match and is_gone(process_of(match["tag"])):
            yield name
