"""Where a name leads inside a directory that is held open, whatever is renamed meanwhile.

A path that was resolved and is then opened by name may lead elsewhere by then. So no path is opened
here: each folder is opened in the one before it and never through a link, and of a link the text is
read and walked by the same steps. What is opened in the end was inside the directory when its
folder was entered; a folder that is moved out later takes with it what is opened in it.

Linux has one call for the folders of a name (openat2(2) with RESOLVE_BENEATH). Checks do without
it, since they open a folder once for the files in it.
"""

import errno
import os
import stat
from collections.abc import Callable

from shardproof._base.messages import shown
from shardproof._base.opening import MAX_LINKS

OpenAt = Callable[[str, int], int | None]
"""Opens what has a name of one part in the directory of a descriptor; None for a symbolic link."""

# Where there is no O_PATH, as on macOS, a folder on the way has to be readable.
_FOLDER_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class NotRegularError(Exception):
    """A name that leads to no regular file inside the root: to what, or to where outside."""

    def __init__(self, found: str, outside: str | None = None) -> None:
        super().__init__(found)
        self.found = found
        self.outside = outside


class Walk:
    """The way from a real directory, which is open, to what a name leads to."""

    def __init__(self, root: str, dir_fd: int, *, links: bool) -> None:
        self._root, self._dir_fd, self._links = root, dir_fd, links
        self._folders: list[tuple[str, int]] = []  # names and descriptors from there to here
        self._parts: list[str] = []  # what is still to be walked
        self._n_links = 0

    def open(self, name: str, open_at: OpenAt) -> int:
        """Open what a name leads to inside the directory; ``open_at`` opens the last part."""
        self._parts = _parts_of(name)
        try:
            while True:
                part = self._parts.pop(0)
                if part == "..":
                    if self._folders:
                        os.close(self._folders.pop()[1])
                        self._parts = self._parts or ["."]
                    else:
                        self._come_back(self._path("..", *self._parts))
                elif self._parts:
                    self._enter(part)
                elif (fd := open_at(part, self._at)) is not None:
                    return fd
                else:
                    self._follow(part)
        finally:
            self._return_to_root()

    @property
    def _at(self) -> int:
        return self._folders[-1][1] if self._folders else self._dir_fd

    def _path(self, *parts: str) -> str:
        return os.path.join(self._root, *(name for name, _ in self._folders), *parts)

    def _enter(self, part: str) -> None:
        try:
            fd = open_here(part, self._at)
        except OSError as error:
            if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                raise
            mode = os.stat(part, dir_fd=self._at, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode) and not stat.S_ISDIR(mode):  # nor became one meanwhile
                raise
            self._follow(part)
        else:
            self._folders.append((part, fd))

    def _follow(self, part: str) -> None:
        """Put what a link says in the place of its name."""
        if not self._links:
            raise NotRegularError(f"symbolic link, '{shown(self._path(part))}'")
        self._count(self._path(part))
        try:
            text = os.readlink(part, dir_fd=self._at)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            text = part  # it is no link any more
        if os.path.isabs(text):
            self._come_back(os.path.join(text, *self._parts))
        else:
            self._parts = _parts_of("/".join([text, *self._parts]))

    def _come_back(self, path: str) -> None:
        """Walk on in the directory, if that is where a path leads that leaves it."""
        while True:
            try:
                real = os.path.realpath(path, strict=True)  # noqa: TID251 - it raises
                break
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                self._count(path)  # something on the way was a link, and is none any more
        if os.path.commonpath([self._root, real]) != self._root:
            raise NotRegularError(f"symbolic link to '{shown(real)}', outside the root", real)
        self._return_to_root()
        self._parts = _parts_of(os.path.relpath(real, self._root))

    def _count(self, path: str) -> None:
        self._n_links += 1
        if self._n_links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _return_to_root(self) -> None:
        while self._folders:
            os.close(self._folders.pop()[1])


def open_here(part: str, dir_fd: int) -> int:
    """Open a folder by a name of one part; where that is a link, this raises."""
    return os.open(part, _FOLDER_FLAGS, dir_fd=dir_fd)


def _parts_of(text: str) -> list[str]:
    """Split a path; the last part is ``.`` where it can only be that of a folder."""
    parts = [part for part in text.split("/") if part not in {"", "."}]
    return [*parts, "."] if not parts or text.endswith(("/", "/.")) else parts
