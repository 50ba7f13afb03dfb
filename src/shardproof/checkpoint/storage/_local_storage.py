"""Keep checkpoints in directories of this machine, or of a file system that it mounts."""

import contextlib
import copy
import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from shardproof._base import files
from shardproof._base.names import NotRegularError, open_inside
from shardproof._base.opening import mode_of, real_path

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ACCESS_LIST = "system.posix_acl_access"
_NO_DIRECTORY = {errno.ENOTDIR, errno.ELOOP}


class NotRegularFileError(OSError):
    """A directory, a FIFO, or a link that leads out of the directory, in the place of a file."""


class LocalFile:
    """A file that is open for reading; it closes its descriptor, even if it can't be made."""

    def __init__(self, fd: int, path: str) -> None:
        try:
            self.size = os.fstat(fd).st_size
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd
        self.path = path

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read bytes from ``offset`` on into a buffer; return how many, 0 at the end."""
        return os.preadv(self.fd, [buffer], offset)

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)


class LocalStorage:
    """A storage of checkpoints in directories: each file is written, synced and then renamed.

    Of several attempts to save one prefix at once, at most one makes a checkpoint.
    """

    _root: tuple[str, int] | None = None
    """The directory that is held, and its descriptor."""

    @contextlib.contextmanager
    def holding(self, directory: str) -> Iterator["LocalStorage"]:
        """Give the same storage, which follows no link on the way to what is below a directory.

        So it is for what is opened, listed, made or removed, and renamed without being synced.
        """
        fd = None
        if self._root is None:
            with contextlib.suppress(FileNotFoundError):
                fd = self._enter(directory)
        if fd is None:  # it does so already, or nothing is there
            yield self
            return
        try:
            held = copy.copy(self)
            object.__setattr__(held, "_root", (directory, fd))  # it may be a frozen dataclass
            yield held
        finally:
            os.close(fd)

    def url(self, path: str) -> str:
        """Return the absolute path."""
        return os.path.abspath(path)

    def open(self, path: str) -> LocalFile:
        """Open a regular file of its directory for reading; a link that leads out is refused.

        Of what is no regular file, the `OSError` says what it is.
        """
        directory, name = os.path.split(path)
        root = real_path(directory)
        dir_fd = self._enter(directory if self._root else root)
        try:
            return LocalFile(open_inside(name, root=root, dir_fd=dir_fd), path)
        except NotRegularError as error:
            raise NotRegularFileError(f"a {error.found}") from error
        finally:
            os.close(dir_fd)

    def writer(self, path: str, *, sync: bool) -> AbstractContextManager[int]:
        """Give the descriptor of an empty file that is at ``path``, whole, in the end."""
        return files.being_written(path, sync=sync)

    def exclusive_writer(
        self, path: str, temporary: str, *, sync: bool
    ) -> AbstractContextManager[int]:
        """Give the descriptor of a new file that is at ``path`` in the end, if nothing is."""
        return files.being_published(path, temporary, sync=sync)

    def rename(self, source: str, target: str, *, sync: bool) -> None:
        """Rename a file, in place of what has the name; with ``sync`` for good."""
        if sync:
            files.move_whole(source, target)
            return
        with self._at(source) as (source_fd, name), self._at(target) as (target_fd, new_name):
            try:
                files.move(name, new_name, source_fd=source_fd, target_fd=target_fd)
            except OSError as error:
                error.filename, error.filename2 = source, target
                raise

    def make_folder(self, path: str) -> None:
        """Make a directory in one that is there, unless it is there; it is not synced.

        All who may write to the directory above may write to the new one.
        """
        directory, name = os.path.split(path)
        with self._entered(directory) as dir_fd, _naming(path):
            try:
                os.mkdir(name, dir_fd=dir_fd)
            except FileExistsError as error:
                mode = mode_of(name, dir_fd=dir_fd)
                if mode and not stat.S_ISDIR(mode):
                    number = errno.ENOTDIR
                    raise NotADirectoryError(number, os.strerror(number), path) from error
                return
            _share(name, dir_fd)

    def remove_directory(self, path: str) -> bool:
        """Remove a directory unless something is in it; say whether it is gone."""
        with contextlib.suppress(FileNotFoundError), self._at(path) as (dir_fd, name):
            return files.remove_empty(name, dir_fd=dir_fd)
        return True

    def sync_directory(self, path: str) -> None:
        """Sync the names in a directory to the disk."""
        with self._entered(path) as fd:
            files.sync(fd)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Make ``path`` hold ``data``, or leave it as it was; with ``sync`` for good."""
        with (
            files.being_written(path, sync=sync) as fd,
            files.telling_where(path),
            open(fd, "wb", closefd=False) as file,
        ):
            file.write(data)

    def list(self, directory: str) -> Sequence[tuple[str, bool]]:
        """Return the names in a directory, and which are directories; none if it is not there.

        A link to a directory is none: what it leads to has a name of its own, or lies elsewhere.
        """
        try:
            if self._root is None:
                return _list(directory)
            with self._entered(directory) as fd:
                return _list(fd)
        except FileNotFoundError:
            return []

    def look_up(self, path: str) -> bool | None:
        """Return whether it is a directory, and no link to one; None if nothing is there."""
        directory, name = os.path.split(path)
        # NFS answers from what it knew a while ago, unless the directory is opened before.
        with contextlib.suppress(FileNotFoundError), self._entered(directory) as dir_fd:
            with _naming(path):
                mode = mode_of(name, dir_fd=dir_fd)
            return stat.S_ISDIR(mode) if mode else None
        return None

    def modified(self, path: str) -> float | None:
        """Return when a file was last written; None if it is gone."""
        try:
            return os.stat(path, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return None

    def move(self, source: str, target: str) -> None:
        """Rename a file, for good."""
        files.move_whole(source, target)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError), self._at(path) as (dir_fd, name):
            files.remove(name, dir_fd=dir_fd)

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it.

        Where one is held, all who may write to the directory above may write to the new one.
        """
        with self._at(path) as (dir_fd, name):
            if dir_fd is None:
                files.make_directories(path)
            else:
                os.mkdir(name, dir_fd=dir_fd)
                _share(name, dir_fd)
                files.sync(dir_fd)

    def sweep(self, directory: str) -> None:
        """Remove what killed writers of this package left there."""
        if self._root is None:
            files.sweep_leftovers(directory)
            return
        with self._entered(directory) as fd:
            files.sweep_leftovers(fd)

    def _enter(self, directory: str) -> int:
        """Return a descriptor of a directory: where one is held, of that one or of one below it.

        A path leads elsewhere once a directory on it was moved away and a link put in its place. So
        each directory is opened in the one before it. A link in the place of a directory is not
        there, as in a listing: `FileNotFoundError`.
        """
        if self._root is None:
            return os.open(directory, _OPEN_DIRECTORY)
        path, root_fd = self._root
        fd = os.dup(root_fd)
        for part in os.path.relpath(directory, path).split("/"):
            try:
                deeper = os.open(part, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            except OSError as error:
                number = errno.ENOENT if error.errno in _NO_DIRECTORY else error.errno or errno.EIO
                raise OSError(number, os.strerror(number), directory) from error
            finally:
                os.close(fd)
            fd = deeper
        return fd

    @contextlib.contextmanager
    def _entered(self, directory: str) -> Iterator[int]:
        fd = self._enter(directory)
        try:
            with _naming(directory):
                yield fd
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _at(self, path: str) -> Iterator[tuple[int | None, str]]:
        """Give a file's name, relative to a descriptor where a directory is held."""
        if self._root is None:
            yield None, path
            return
        directory, name = os.path.split(path)
        with self._entered(directory) as fd, _naming(path):
            yield fd, name


def _list(directory: str | int) -> list[tuple[str, bool]]:
    with os.scandir(directory) as found:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Add a path to the errors of calls that take a descriptor."""
    try:
        yield
    except OSError as error:
        if not os.path.isabs(str(error.filename)):
            error.filename = path
        raise


def _share(name: str, dir_fd: int) -> None:
    """Let a new directory be written to by all who may write to the one above, where possible."""
    above = os.fstat(dir_fd)
    with contextlib.suppress(OSError):
        # Where only an owner may remove what is there, no one else could remove the new one; and
        # where a list says who may, the group's bits are no group's (acl(5)).
        has_list = sys.platform == "linux" and _ACCESS_LIST in os.listxattr(dir_fd)
        if above.st_mode & stat.S_ISVTX or has_list:
            return
        fd = os.open(name, _OPEN_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)
        try:
            for owner in (above.st_uid, -1):  # only root may give it away
                with contextlib.suppress(OSError):
                    os.fchown(fd, owner, above.st_gid)
            made = os.fstat(fd)
            shared = stat.S_IRWXO | (stat.S_IRWXG if made.st_gid == above.st_gid else 0)
            os.fchmod(fd, stat.S_IMODE(made.st_mode) | above.st_mode & shared)
        finally:
            os.close(fd)
