"""Checkpoints in whatever fsspec opens: object stores, other machines, memory."""

import contextlib
import datetime
import os
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["FsspecStorage"]

_SLICE = 2**24


class FsspecStorage:
    """Checkpoints in a file system of fsspec.

    A shard is first written to a temporary file of this machine, and then put in one piece, so
    there must be room for it in ``$TMPDIR``. Nothing is renamed: object stores can't, and show a
    file when it is whole.

    Args:
        filesystem: An ``fsspec.AbstractFileSystem``; its credentials are used.
    """

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    @classmethod
    def of_url(cls, url: str) -> "FsspecStorage":
        """Return the storage of an address such as ``s3://bucket/run/model``."""
        import fsspec  # noqa: PLC0415 - 60 ms, only for who has such an address

        return cls(fsspec.core.url_to_fs(url)[0])

    def absolute(self, path: str) -> str:
        """Return the path in the file system, without its protocol."""
        return str(self._fs._strip_protocol(path))

    def address(self, path: str) -> str:
        """Return how messages name it: with its protocol."""
        return str(self._fs.unstrip_protocol(path))

    def open(self, path: str) -> "_RemoteFile":
        """Find a file, for reading.

        Raises:
            FileNotFoundError: It is not there.
            OSError: It is no file, or the file system failed.
        """
        self._fs.invalidate_cache(os.path.dirname(path))
        info = self._fs.info(path)
        if info["type"] != "file":
            raise OSError(f"expected a file, found a {info['type']}")
        return _RemoteFile(self._fs, path, info["size"])

    @contextlib.contextmanager
    def being_written(self, path: str, *, sync: bool) -> Iterator[int]:  # noqa: ARG002 - it syncs
        """Give the descriptor of an empty local file that is put to ``path`` in the end."""
        with tempfile.NamedTemporaryFile(prefix="shardproof-") as file:
            yield file.fileno()
            self._fs.put_file(file.name, path)

    def write(self, path: str, data: bytes, *, sync: bool) -> None:  # noqa: ARG002 - as above
        """Put ``data`` to ``path``."""
        self._fs.pipe_file(path, data)

    def entries(self, directory: str) -> Sequence[tuple[str, bool]]:
        """Return the names in a directory, and which are directories; none if it is not there."""
        self._fs.invalidate_cache(directory)
        try:
            found = self._fs.ls(directory, detail=True)
        except FileNotFoundError:
            return []
        return [
            (entry["name"].rstrip("/").rpartition("/")[2], entry["type"] == "directory")
            for entry in found
        ]

    def modified(self, path: str) -> float | None:
        """Return when a file was last written; None if it is gone, or nobody knows."""
        try:
            time: datetime.datetime = self._fs.modified(path)
        except (FileNotFoundError, NotImplementedError):
            return None
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()

    def move(self, source: str, target: str) -> None:
        """Copy a file, and remove it when the copy is there."""
        self._fs.pipe_file(target, self._fs.cat_file(source))
        self.remove(source)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(path)

    def make_directories(self, path: str) -> None:
        """Make a directory, where the file system has them."""
        self._fs.makedirs(path, exist_ok=True)

    def sweep(self, directory: str) -> None:
        """Nothing is left: what is not whole never had a name."""


class _RemoteFile:
    def __init__(self, filesystem: Any, path: str, size: int) -> None:
        self._fs, self._path = filesystem, path
        self.path = str(filesystem.unstrip_protocol(path))
        self.size = size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        end = min(offset + len(buffer), offset + _SLICE, self.size)
        if end <= offset:
            return 0
        data = self._fs.cat_file(self._path, start=offset, end=end)
        n = min(len(data), len(buffer))
        buffer[:n] = data[:n]
        return n

    def close(self) -> None:
        pass
