"""The directory where a worker writes its outputs, and how they get their names from there."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from shardproof._base import files
from shardproof._base.messages import shown
from shardproof._base.names import file_type, open_root
from shardproof._base.opening import closing_fd, mode_of
from shardproof.errors import ReceiptError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class Workspace:
    """The directory in which one claim writes, and the plan directory that its outputs go to."""

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
        """Raise `ReceiptError` if a part of the way to an output is no folder."""
        with contextlib.suppress(FileNotFoundError), _folder_of(name, self._root, make=False):
            pass

    def move(self, name: str) -> None:
        """Move a file that was written and synced to its name, and sync that name."""
        path = os.path.join(self._root, name)
        with _folder_of(name, self._root, make=True) as fd, files.telling_where(path):
            files.move(os.path.join(self._path, name), os.path.basename(name), target_fd=fd)
            with files.as_unsynced(path):
                files.sync(fd)

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole: it gets its name when it is on the disk; raises as `move`."""
        path = self.place(name)
        with files.telling_where(path), open(path, "wb") as file:
            file.write(data)
            file.flush()
            files.sync(file.fileno())
        self.move(name)


@contextlib.contextmanager
def _folder_of(name: str, root: str, *, make: bool) -> Iterator[int]:
    """Yield a descriptor of the directory that a name of the plan directory is in."""
    # Folders are opened one in another, and none through a link, be it put there meanwhile.
    path = root
    with contextlib.ExitStack() as stack:
        fd = stack.enter_context(closing_fd(open_root(root)))
        for part in name.split("/")[:-1]:
            path = os.path.join(path, part)
            with files.telling_where(path):
                fd = stack.enter_context(closing_fd(_entered(part, fd, path, make=make)))
        yield fd


def _entered(part: str, outer: int, path: str, *, make: bool) -> int:
    """Open a folder in another one; make it if nothing is there."""
    try:
        return _opened(part, outer, path)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, dir_fd=outer)
        try:
            files.sync(outer)
        except OSError:
            files.remove_empty(part, dir_fd=outer)  # or it may be gone after a power cut
            raise
    return _opened(part, outer, path)


def _opened(part: str, outer: int, path: str) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=outer)
    except OSError as error:
        if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
            raise
        found = file_type(mode_of(part, dir_fd=outer))
        problem = (
            f"expected a directory at '{shown(path)}', found a {found}: put a directory in its "
            "place, or open the run where the outputs are to be"
        )
        raise ReceiptError(problem, path=path) from error
