"""Where a copy is: a directory that gets its name when all of it is there and proven.

Until then it has ``.unfinished`` at the end of its name, and all processes that stage the same
directory work in it. The first that is done renames it; what the others had open goes with it.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator

from shardproof._base import files as _files
from shardproof._base.names import file_type
from shardproof._base.opening import is_directory, is_there
from shardproof.staging._copies import StagedFiles

__all__ = ["CopyDirectory"]

_UNFINISHED = ".unfinished"


class CopyDirectory:
    """The directory of this user's copies, and the place of one in it.

    Args:
        to: Real absolute path of an existing directory on a local disk.
        name: Of the copy.
        folders: The directories that are in it.

    Attributes:
        final: The path of the copy when it is whole.
        place: Where it is made, or mended.

    Raises:
        NotADirectoryError: ``to`` is none.
        PermissionError: Somebody else may enter the directory of the copies.
        OSError: It can't be looked at, or not be made.
    """

    def __init__(self, to: str, name: str, folders: Iterable[str]) -> None:
        if not is_directory(to):
            problem = "expected an existing directory on a local disk"
            raise NotADirectoryError(errno.ENOTDIR, problem, to)
        base = os.path.join(to, f"shardproof-{os.geteuid()}")
        self.final = os.path.join(base, name)
        self.place = self._unfinished = self.final + _UNFINISHED
        self._folders = sorted({part for folder in folders for part in _and_above(folder)})
        _make_own(base)

    def prepare(self) -> None:
        """Make the directory to work in, and those in it."""
        self._choose_place()
        for directory in (self.place, *(os.path.join(self.place, part) for part in self._folders)):
            _make_own(directory)
            _files.sweep_leftovers(directory)

    def _choose_place(self) -> None:
        self.place = self._unfinished
        if not is_there(self.final):
            _make_own(self._unfinished)
        if is_there(self.final):
            self.place = self.final
            # A process still at work there finds it gone, and then finds the finished copy.
            with contextlib.suppress(OSError):  # it costs room, no more
                _files.remove_tree(self._unfinished)

    def is_finished_by_others(self) -> bool:
        """Whether another process finished the copy while this one was at it."""
        return self.place != self.final and is_there(self.final)

    def finish(self, files: StagedFiles) -> bool:
        """Give a proven copy its name; say whether it has it now, or another one has."""
        try:
            if self.place != self.final:
                _files.move(self.place, self.final)
        except OSError:
            if not is_there(self.final):
                raise
        return files.is_at(self.final)


def _and_above(folder: str) -> Iterator[str]:
    parts = folder.split("/") if folder else []
    return ("/".join(parts[:n]) for n in range(1, len(parts) + 1))


def _make_own(path: str) -> None:
    """Make a directory for this user alone; refuse what another one may have put there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    status = os.lstat(path)
    found = file_type(status.st_mode)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if found == "directory" and status.st_uid == os.geteuid() and not mode & 0o077:
        return
    problem = (
        f"expected a directory of uid {os.geteuid()} with mode 700, found a {found} of uid "
        f"{status.st_uid} with mode {mode:o}; remove it, or stage to another directory"
    )
    raise PermissionError(errno.EPERM, problem, path)
