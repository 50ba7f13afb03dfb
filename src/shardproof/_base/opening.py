"""What is at a path: there, not there, or a look was not possible.

`os.path.exists`, `isdir` and their kin, `Path.is_file`, `glob` and `os.walk` answer "not there" for
EIO, ESTALE, EACCES and EMFILE as well, and so a damaged disk becomes a smaller data set. They are
banned in this package; these are what to use. Each of them raises the `OSError` of a look that
failed. `os.path.realpath` is banned with them: a link that it could not read it takes for a
directory, and what is behind the link is then "outside".
"""

import contextlib
import errno
import fnmatch
import io
import itertools
import os
import stat
from collections.abc import Iterator, Sequence, Set
from typing import IO, Any

from shardproof._base.addresses import OpenFile as OpenFile  # noqa: PLC0414
from shardproof._base.addresses import Read as Read  # noqa: PLC0414
from shardproof._base.addresses import remote_at

EMPTY = "expected a path, found an empty text: is a variable not set? The current directory is '.'"
"""What is said of an empty path, in the library and by the command."""

UNFINISHED = (".part", ".crdownload", ".aria2", ".incomplete")
"""How the names end of what a download is not done with, or of its mark beside it."""

TEMPORARY = "_temporary"
"""Into which a job of Hadoop writes until it commits."""

_OF_DESKTOPS = {".ds_store", "thumbs.db", "desktop.ini", "@eadir", "lost+found"}

# A look that ends so has been made: no path of such a name leads to anything.
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR}

MAX_NAME_BYTES = 255
"""NAME_MAX of ext4, XFS, Lustre, NFS, GPFS (limits.h(0p))."""

_ABOUT_THE_FILE = {
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENOTDIR, errno.ENAMETOOLONG),
    errno.ENXIO,
}
"""What open(2) and stat(2) answer for a reason that lies in the file or its permissions; any other
number (EIO, ESTALE, EMFILE, ETIMEDOUT, ...) says that the check itself failed."""

MAX_LINKS = 40
"""Links that one name may lead through: as many as Linux follows (path_resolution(7))."""


def is_conclusive(number: int | None) -> bool:
    """Whether an errno, or none, tells something about the file, not that the check failed."""
    return number is None or number in _ABOUT_THE_FILE


def may_be_whole(number: int | None) -> bool:
    """Whether a file of which the system gave this errno may be whole: it was not seen."""
    return not is_conclusive(number) or number in {errno.EACCES, errno.EPERM}


def is_too_long(error: OSError) -> bool:
    """Whether a name is too long for any file to have it; of a path that is, it can't be told."""
    names = os.fsencode(error.filename or "").split(b"/")
    return error.errno == errno.ENAMETOOLONG and max(map(len, names)) > MAX_NAME_BYTES


def refuse_empty(**paths: str | os.PathLike[str] | None) -> None:
    """Refuse an empty path, which the operating system's modules take for the current directory."""
    for name, path in paths.items():
        if path is not None and not os.fspath(path):
            raise ValueError(f"{name}: {EMPTY}")


def refuse_no_path(**paths: str | os.PathLike[str] | None) -> None:
    """Refuse an empty path, and an address, where a path of this machine belongs."""
    refuse_empty(**paths)
    for path in paths.values():
        remote_at(path or "")  # which refuses it


def permission_denied() -> str:
    """Return what is said of something that may not be read."""
    return f"permission denied (uid {os.geteuid()}); ask its owner to let you read it"


def mode_of(
    path: str | os.PathLike[str], *, follow: bool = False, dir_fd: int | None = None
) -> int:
    """Return the ``st_mode`` of what is at a path; 0 where nothing is."""
    if (place := remote_at(path)) is not None:
        return place.directory.mode(place.name)
    return getattr(found_at(path, follow=follow, dir_fd=dir_fd), "st_mode", 0)


def found_at(
    path: str | os.PathLike[str], *, follow: bool = False, dir_fd: int | None = None
) -> os.stat_result | None:
    """Return the status of what is at a path; None where nothing is."""
    if (place := remote_at(path)) is not None:
        return place.directory.status(place.name)
    # With ``follow`` a link that leads nowhere, or round in a circle, is nothing, too.
    try:
        return os.stat(path, dir_fd=dir_fd, follow_symlinks=follow)
    except OSError as error:
        if error.errno in _NOT_THERE or (follow and error.errno == errno.ELOOP):
            return None
        raise


def status_of(path: str, *, follow: bool = True) -> os.stat_result | None:
    """Return what is known of a file, or of what its link leads to; None where nothing can be."""
    if (place := remote_at(path)) is not None:
        return place.directory.status(place.name)
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as error:
        if is_conclusive(error.errno):
            return None
        raise


def is_there(path: str | os.PathLike[str]) -> bool:
    """Whether anything is at a path, be it a link that leads nowhere."""
    return mode_of(path) != 0


def is_directory(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is at a path, or behind a link there."""
    return stat.S_ISDIR(mode_of(path, follow=True))


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file is at a path, or behind a link there."""
    return stat.S_ISREG(mode_of(path, follow=True))


def is_link(path: str | os.PathLike[str]) -> bool:
    """Whether a symbolic link is at a path."""
    return stat.S_ISLNK(mode_of(path))


def real_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of what a path leads to, without symbolic links."""
    if remote_at(path) is not None:
        return os.fspath(path).rstrip("/")
    # Parts that are not there are kept. So is a path whose links lead round in a circle: to open it
    # is then an error.
    whole = os.fspath(path) if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    real, rest, n_links = "/", whole.split("/")[::-1], 0
    while rest:
        part = rest.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            real = os.path.dirname(real)
            continue
        here = os.path.join(real, part)
        if not is_link(here):
            real = here
            continue
        try:
            target = os.readlink(here)
        except OSError as error:
            if error.errno not in _NOT_THERE | {errno.EINVAL}:
                raise
            real = here  # it is no link any more
            continue
        n_links += 1
        if n_links > MAX_LINKS:
            return whole
        real = "/" if os.path.isabs(target) else real
        rest += target.split("/")[::-1]
    return real


def is_of_a_desktop(name: str) -> bool:
    """Whether a name is of what systems put into any folder, as macOS ``._x`` beside ``x``."""
    return name.startswith("._") or name.lower() in _OF_DESKTOPS


def is_never_a_shard(name: str) -> bool:
    """Whether no shard is expected under a name: hidden, a desktop's, unfinished, uncommitted."""
    is_unfinished = name.lower().endswith(UNFINISHED) or name == TEMPORARY
    return name.startswith(".") or is_unfinished or is_of_a_desktop(name)


def listed_in(directory: str | os.PathLike[str]) -> Sequence[str]:
    """Return the names in a directory, in any order; raise where there is no directory."""
    place = remote_at(directory)
    return os.listdir(directory) if place is None else place.directory.names(place.name)


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """Return the names in a directory, sorted; none where there is no directory."""
    try:
        return sorted(listed_in(directory))
    except OSError as error:
        if error.errno in _NOT_THERE:
            return []
        raise


def matching(directory: str | os.PathLike[str], pattern: str) -> list[str]:
    """Return the names of possible shards in a directory that a pattern of fnmatch fits, sorted."""
    names = fnmatch.filter(names_in(directory), pattern)
    return [name for name in names if not is_never_a_shard(name)]


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
def closing_fd(fd: int) -> Iterator[int]:
    """Close a descriptor in the end: for work that no interrupt reaches."""
    try:
        yield fd
    finally:
        os.close(fd)


class HeldFile:
    """A descriptor, which is closed when nothing refers to this any more: so no reader loses it."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


def tree(directory: str | os.PathLike[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a directory as `os.walk` does, each level sorted; no link is followed."""
    if remote_at(directory) is not None:
        yield from _remote_tree(os.fspath(directory))
        return
    # Each folder is opened in the one above it: none is entered that became a link meanwhile.
    todo, above = [(0, os.fspath(directory))], list[int]()
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        while todo:
            depth, here = todo.pop()
            while len(above) > depth:
                os.close(above.pop())
            with telling_where(here):
                if above:
                    fd = os.open(os.path.basename(here), flags | os.O_NOFOLLOW, dir_fd=above[-1])
                else:
                    fd = os.open(here, flags)
                above.append(fd)
                with os.scandir(fd) as found:
                    entries = sorted(found, key=lambda entry: entry.name)
            directories = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            others = set(directories)
            yield here, directories, [e.name for e in entries if e.name not in others]
            todo += [(depth + 1, os.path.join(here, name)) for name in reversed(directories)]
    finally:
        for fd in above:
            os.close(fd)


def _remote_tree(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    todo = [top]
    while todo:
        here = todo.pop()
        directories, others = list[str](), list[str]()
        for name in listed_in(here):
            is_folder = stat.S_ISDIR(mode_of(os.path.join(here, name)))
            (directories if is_folder else others).append(name)
        yield here, directories, others
        todo += [os.path.join(here, name) for name in reversed(directories)]


def files_below(directory: str | os.PathLike[str], *, hidden: bool = False) -> list[str]:
    """Return what lies in a directory and below, links too; what is never a shard if ``hidden``."""
    root, found = os.fspath(directory), []
    for here, folders, others in tree(root):
        names = others
        if not hidden:
            folders[:] = itertools.filterfalse(is_never_a_shard, folders)
            names = list(itertools.filterfalse(is_never_a_shard, others))
        below = os.path.relpath(here, root)
        found += names if below == "." else [f"{below}/{name}" for name in names]
    return found


def read_at(fd: int, n_bytes: int, offset: int = 0) -> bytes:
    """Return so many bytes of an open file, or fewer where it ends."""
    # One call may give fewer, as on FUSE, and on NFS when a signal comes (read(2)).
    block = os.pread(fd, n_bytes, offset) if n_bytes > 0 else b""
    if len(block) == n_bytes:
        return block
    blocks, at, end = [block], offset + len(block), offset + n_bytes
    while block and (block := os.pread(fd, end - at, at)):
        blocks.append(block)
        at += len(block)
    return b"".join(blocks)


class Descriptor(int):
    """A descriptor as an `OpenFile`: a probe that takes it for one may still call `os.pread`."""

    __slots__ = ()
    __call__ = read_at

    @property
    def status(self) -> os.stat_result:
        """What is known of the file."""
        return os.fstat(self)

    def stated(self, _asked: Set[tuple[str, int]]) -> dict[tuple[str, int], Any]:
        """Return nothing: no file system states digests."""
        return {}

    def close(self) -> None:
        """Close it."""
        os.close(self)


def read_into(read: Read | int, buffer: memoryview, offset: int) -> int:
    """Read what fills a buffer, or less; return how many bytes."""
    if isinstance(read, int):
        return os.preadv(read, [buffer], offset)
    data = read(len(buffer), offset)
    buffer[: len(data)] = data
    return len(data)


class _Readable(io.RawIOBase):
    """What `file_of` reads from."""

    def __init__(self, read: Read, size: int) -> None:
        self._read, self._size, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    seekable = readable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: max(0, self._size - self._at)]
        self._at += (n_read := read_into(self._read, view, self._at))
        return n_read


def file_of(read: Read, size: int, buffering: int = io.DEFAULT_BUFFER_SIZE) -> IO[bytes]:
    """Return a file to be read as Python's own are, for modules that take nothing else."""
    if isinstance(read, int):
        return os.fdopen(read, "rb", buffering, closefd=False)
    return io.BufferedReader(_Readable(read, size), buffering)
