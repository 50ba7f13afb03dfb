"""Keep checkpoints in what fsspec opens: object stores, other machines, memory."""

import contextlib
import datetime
import errno
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

from shardproof._base.messages import WRONG_USAGE, traced, with_kind
from shardproof.checkpoint.storage._storage import NotRegularFileError, StoredFile

_SLICE = 2**24

# What the classes of OSError mean, which fsspec raises without numbers.
_KNOWN = ("ENOENT", "EACCES", "EEXIST", "ENOTDIR", "EISDIR", "ETIMEDOUT")
_NUMBERS = {type(OSError(getattr(errno, name), "")): getattr(errno, name) for name in _KNOWN}


def number_of(error: Exception) -> int:
    """Return the errno of an error, or else of its class; EIO where neither is known."""
    number = error.errno if isinstance(error, OSError) else None
    if number and isinstance(number, int):  # the first of two arguments, whatever it is
        return number
    return next((number for kind, number in _NUMBERS.items() if isinstance(error, kind)), errno.EIO)


@contextlib.contextmanager
def _numbered() -> Iterator[None]:
    """Raise an `OSError` with an errno for what a client raises, be it a class of its own."""
    try:
        yield
    except Exception as error:
        number = number_of(error)
        is_usage = isinstance(error, WRONG_USAGE) and not isinstance(error, json.JSONDecodeError)
        if is_usage or (isinstance(error, OSError) and error.errno == number):
            raise
        raise OSError(number, with_kind(error)) from traced(error)


class FsspecStorage:
    """A storage of checkpoints in a file system of fsspec.

    A shard is first written to a temporary file of this machine, and then put in one piece, so
    there must be room for it in ``$TMPDIR``. Nothing is renamed: object stores can't, and show a
    file when it is whole.

    What its client raises where it fails is raised as an `OSError`, with a number.

    Args:
        filesystem: An ``fsspec.AbstractFileSystem``; its credentials are used.
    """

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    @classmethod
    @_numbered()
    def from_url(cls, url: str) -> "FsspecStorage":
        """Return the storage of a URL such as ``s3://bucket/run/model``.

        Example:
            >>> from shardproof.checkpoint import FsspecStorage
            >>> FsspecStorage.from_url("memory://run/model").url("run/model")
            'memory:///run/model'
        """
        import fsspec  # noqa: PLC0415 - 60 ms, only for such a URL

        return cls(fsspec.core.url_to_fs(url)[0])

    def url(self, path: str) -> str:
        """Return the URL of a path or a URL."""
        return str(self._fs.unstrip_protocol(self._inside(path)))

    def _inside(self, url: str) -> str:
        return str(self._fs._strip_protocol(url))

    def open(self, path: str) -> "FsspecFile":
        """Find a file, for reading; raise `OSError` where it is none, or not there."""
        inside = self._inside(path)
        with _numbered():
            self._fs.invalidate_cache(os.path.dirname(inside))
            info = self._fs.info(inside)
        if info["type"] != "file":
            raise NotRegularFileError(f"a {info['type']}")
        return FsspecFile(self._fs, inside, info["size"])

    @contextlib.contextmanager
    def writer(
        self,
        path: str,
        temporary: str,  # noqa: ARG002 - nothing is renamed
        *,
        sync: bool,  # noqa: ARG002 - it syncs
        replace: bool = True,
    ) -> Iterator[int]:
        """Give the descriptor of an empty local file that is put to ``path`` in the end.

        Without ``replace`` two at once may both succeed.
        """
        with tempfile.NamedTemporaryFile(prefix="shardproof-") as file:
            yield file.fileno()
            if not replace and self.look_up(path) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            with _numbered():
                self._fs.put_file(file.name, self._inside(path))

    @_numbered()
    def write(self, path: str, data: bytes, *, sync: bool) -> None:  # noqa: ARG002 - it syncs
        """Put ``data`` to ``path``."""
        self._fs.pipe_file(self._inside(path), data)

    @_numbered()
    def list(self, directory: str) -> Sequence[tuple[str, bool]]:
        """Return the names in a directory, and which are directories; none if it is not there."""
        inside = self._inside(directory)
        self._fs.invalidate_cache(inside)
        try:
            found = self._fs.ls(inside, detail=True)
        except FileNotFoundError:
            return []
        return [
            (entry["name"].rstrip("/").rpartition("/")[2], entry["type"] == "directory")
            for entry in found
        ]

    @_numbered()
    def look_up(self, path: str) -> bool | None:
        """Return whether it is a directory; None if nothing is there."""
        inside = self._inside(path)
        self._fs.invalidate_cache(os.path.dirname(inside))
        try:
            return bool(self._fs.info(inside)["type"] == "directory")
        except FileNotFoundError:
            return None

    @_numbered()
    def modified(self, path: str) -> float | None:
        """Return when a file was last written; None if it is gone, or that is not known."""
        try:
            time: datetime.datetime = self._fs.modified(self._inside(path))
        except (FileNotFoundError, NotImplementedError):
            return None
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()

    @_numbered()
    def remove(
        self,
        path: str,
        *,
        only: StoredFile | None = None,  # noqa: ARG002 - it can't tell
        sync: bool = False,  # noqa: ARG002 - it syncs
    ) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._inside(path))

    @_numbered()
    def make_directories(self, path: str) -> None:
        """Make a directory, where the file system has them."""
        self._fs.makedirs(self._inside(path), exist_ok=True)

    def sweep(self, directory: str) -> None:
        """Do nothing: what is not whole never had a name."""


class FsspecFile:
    """A file in a file system of fsspec; each read is a request of its own."""

    def __init__(self, filesystem: Any, path: str, size: int) -> None:
        self._fs, self._path = filesystem, path
        self.path = str(filesystem.unstrip_protocol(path))
        self.size = size

    @_numbered()
    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read bytes from ``offset`` on into a buffer; return how many, 0 at the end."""
        end = min(offset + len(buffer), offset + _SLICE, self.size)
        if end <= offset:
            return 0
        data = self._fs.cat_file(self._path, start=offset, end=end)
        n = min(len(data), len(buffer))
        buffer[:n] = data[:n]
        return n

    def close(self) -> None:
        """Close nothing: between two reads nothing is open."""
