"""Keep checkpoints in directories of this machine, or of a file system that it mounts."""

import os
import stat
from collections.abc import Sequence
from contextlib import AbstractContextManager

from shardproof._base import files
from shardproof._base.names import NotRegularError, open_inside
from shardproof._base.opening import closing_fd, mode_of, real_path
from shardproof.checkpoint.storage._storage import NotRegularFileError, StoredFile

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


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

    def url(self, path: str) -> str:
        """Return the absolute path."""
        return os.path.abspath(path)

    def open(self, path: str) -> LocalFile:
        """Open a regular file of its directory for reading; a link that leads out is refused.

        Of what is no regular file, the `OSError` says what it is.
        """
        directory, name = os.path.split(path)
        root = real_path(directory)
        with closing_fd(os.open(root, _OPEN_DIRECTORY)) as dir_fd:
            try:
                return LocalFile(open_inside(name, root=root, dir_fd=dir_fd), path)
            except NotRegularError as error:
                raise NotRegularFileError(f"a {error.found}") from error

    def list(self, directory: str) -> Sequence[tuple[str, bool]]:
        """Return the names in a directory, and which are directories; none if it is not there.

        A link to a directory is none: what it leads to has a name of its own, or lies elsewhere.
        """
        try:
            with os.scandir(directory) as found:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        except FileNotFoundError:
            return []

    def look_up(self, path: str) -> bool | None:
        """Return whether it is a directory, and no link to one; None if nothing is there."""
        directory, name = os.path.split(path)
        try:
            # NFS answers from what it knew a while ago, unless the directory is opened before.
            dir_fd = os.open(directory, _OPEN_DIRECTORY)
        except FileNotFoundError:
            return None
        with closing_fd(dir_fd), files.telling_where(path):
            mode = mode_of(name, dir_fd=dir_fd)
        return stat.S_ISDIR(mode) if mode else None

    def modified(self, path: str) -> float | None:
        """Return when a file was last written; None if it is gone."""
        try:
            return os.stat(path, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return None

    def writer(
        self, path: str, temporary: str, *, sync: bool, replace: bool = True
    ) -> AbstractContextManager[int]:
        """Give the descriptor of an empty file that is at ``path``, whole, in the end."""
        return files.being_written(path, temporary, replace=replace, sync=sync)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:
        """Make ``path`` hold ``data``, or leave it as it was; with ``sync`` for good."""
        with (
            files.being_written(path, sync=sync) as fd,
            files.telling_where(path),
            open(fd, "wb", closefd=False) as file,
        ):
            file.write(data)

    def remove(self, path: str, *, only: StoredFile | None = None, sync: bool = False) -> None:
        """Remove a file, if it is there; with ``only``, if it is still the one that was opened."""
        if isinstance(only, LocalFile):
            status = os.fstat(only.fd)
            files.remove_if(path, lambda found: os.path.samestat(found, status))
        else:
            files.remove(path)
        if sync:
            files.sync_names(os.path.dirname(path))

    def make_directories(self, path: str) -> None:
        """Make a directory and those above it."""
        files.make_directories(path)

    def sweep(self, directory: str) -> None:
        """Remove what killed writers of this package left there."""
        files.sweep_leftovers(directory)
