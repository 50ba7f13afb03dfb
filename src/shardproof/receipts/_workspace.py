"""The directory where a worker writes its outputs, and how they get their names from there.

An output is written in a directory of its claim alone, and moved when it is whole and on the disk.
The folders on the way to its name are opened one in another, so that no link leads out, be it one
that is put there meanwhile.
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from shardproof._base import files
from shardproof._base.beneath import NotRegularError, open_beneath
from shardproof._base.messages import shown
from shardproof._base.names import OPEN_FLAGS, file_type, open_root
from shardproof._base.opening import mode_of
from shardproof.errors import ReceiptError, UnsyncedError
from shardproof.receipts.plan._directories import CLAIMS, RECEIPTS, told_of

_NO_FOLDER = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}

_PASSING = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
"""How a folder is opened on the way to another: what may be searched need not be readable."""


class Workspace:
    """The directory in which one claim writes, and the plan directory that its outputs go to.

    It is made when something is written, on the file system of the plan directory.
    """

    def __init__(self, path: str, root: str) -> None:
        self._path = path
        self._root = root

    def path_of(self, name: str) -> Path:
        """Return where an output is until it gets its name."""
        return Path(self._path, name)

    def place(self, name: str) -> Path:
        """Return where to write what is to have a name later; its directory is made."""
        path = self.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def refuse_links(self, name: str) -> None:
        """Raise `ReceiptError` if a part of the way to an output is no folder, or leads out."""
        with contextlib.suppress(FileNotFoundError), _open_folder_of(name, self._root, make=False):
            pass

    def move(self, name: str) -> None:
        """Move a file that was written and synced to its name, and sync that name."""
        path = os.path.join(self._root, name)
        with _open_folder_of(name, self._root) as fd, told_of(path):
            files.move(os.path.join(self._path, name), os.path.basename(name), target_fd=fd)
            try:
                files.sync(fd)
            except OSError as error:
                raise UnsyncedError(path, error.errno) from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole: it gets its name when it is on the disk; raises as `move`."""
        path = self.place(name)
        with files.telling_where(path), open(path, "wb") as file:
            file.write(data)
            file.flush()
            files.sync(file.fileno())
        self.move(name)


@contextlib.contextmanager
def _open_folder_of(name: str, root: str, *, make: bool = True) -> Iterator[int]:
    """Yield a descriptor of the directory that a name of the plan directory is in.

    Each directory on the way is made if it is not there and that is wanted. None is entered through
    a link that leads out of the plan directory, be it one that is put there meanwhile.
    """
    root_fd = fd = open_root(root)
    try:
        for folder in itertools.accumulate(name.split("/")[:-1], os.path.join):
            outer, fd = fd, _entered(folder, fd, make, root=root, root_fd=root_fd)
            if outer != root_fd:
                os.close(outer)
        if make and fd != root_fd:
            outer, fd = fd, _readable(fd, os.path.join(root, os.path.dirname(name)))
            os.close(outer)
        yield fd
    finally:
        for each in {fd, root_fd}:
            os.close(each)


def _entered(folder: str, outer: int, make: bool, *, root: str, root_fd: int) -> int:
    """Open a folder of the plan directory; make it in the one before it if nothing is there."""
    path = os.path.join(root, folder)
    with told_of(path):
        try:
            return _opened(folder, path, root=root, root_fd=root_fd)
        except FileNotFoundError:
            if not make:
                raise
        part, fd = os.path.basename(folder), _readable(outer, os.path.dirname(path))
        try:
            os.mkdir(part, dir_fd=fd)
            try:
                files.sync(fd)
            except OSError:
                files.remove_empty(part, dir_fd=fd)  # or it may be gone after a power cut
                raise
        except FileExistsError:
            pass
        finally:
            os.close(fd)
        return _opened(folder, path, root=root, root_fd=root_fd)


def _opened(folder: str, path: str, *, root: str, root_fd: int) -> int:
    """Open a folder to pass through it; a link is followed where it stays inside."""
    try:
        fd = open_beneath(folder, _open_folder, root=root, dir_fd=root_fd)
    except NotRegularError as error:
        raise _refusal(path, error.found) from error
    except OSError as error:
        if error.errno in _NO_FOLDER and (mode := mode_of(path)) and not stat.S_ISDIR(mode):
            raise _refusal(path, file_type(mode)) from error
        raise
    try:
        # A link may not lead to where the plan, receipts or claims are, nor receipts elsewhere.
        status = os.fstat(fd)
        for name in (".", RECEIPTS, CLAIMS):
            try:
                needed = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
                is_needed = os.path.samestat(status, needed)
            except FileNotFoundError:
                is_needed = False
            if is_needed is not (name == folder):
                raise _refusal(path, "symbolic link")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open_folder(part: str, dir_fd: int) -> int | None:
    """Open a directory, for which it need not be readable; None for a symbolic link."""
    try:
        return os.open(part, _PASSING, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in _NO_FOLDER and stat.S_ISLNK(mode_of(part, dir_fd=dir_fd)):
            return None
        raise


def _readable(dir_fd: int, path: str) -> int:
    """Open a directory again, to sync it."""
    with told_of(path):
        return os.open(".", OPEN_FLAGS | os.O_DIRECTORY, dir_fd=dir_fd)


def _refusal(path: str, found: str) -> ReceiptError:
    return ReceiptError(
        f"expected a directory at '{shown(path)}', found a {found}: put a directory in its place, "
        "since a link is followed only to a folder of outputs in the plan directory, or open the "
        "run where the outputs are to be",
        path=path,
    )
