"""What fsspec opens as a source: s3://, gs://, file://, memory:// and others."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardproof._arguments import checked
from shardproof.errors import SourceError
from shardproof.prefetch.sources._source import Cut, Delivery, RemoteFile
from shardproof.prefetch.sources._urls import bare

__all__ = ["FsspecSource"]

_BLOCK = 8 * 2**20

_VERSIONS = ("VersionId", "version_id", "generation", "ETag", "etag", "md5Hash", "content_md5")
_MOMENTS = ("mtime", "LastModified", "last_modified", "updated", "created")


class FsspecSource:
    """Files below one address of a file system that fsspec knows.

    Credentials are those of the file system's own library: for ``s3://`` those of the AWS tools.
    Whether a file has changed is told by its version, entity tag or generation, where there is one,
    and by size and time of change otherwise; it is looked at before and after each reading.

    Args:
        url: ``s3://bucket/folder``, ``gs://bucket``, ``file:///folder``, ``memory://folder``, ...
        **options: For the file system's class, such as ``anon=True``.

    Raises:
        ValueError: An address that fsspec does not know.
        ImportError: The package for it is not installed; fsspec tells which.

    Example:
        >>> import fsspec
        >>> fsspec.filesystem("memory").pipe("/shards/0.bin", b"1234")
        >>> source = FsspecSource("memory://shards")
        >>> for file in source.files():
        ...     print(file.name, file.size)
        0.bin 4
    """

    @checked
    def __init__(self, url: str, **options: object) -> None:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - takes 60 ms

        self.url = bare(url)
        self._fs, root = url_to_fs(url, **options)
        self._root = root.rstrip("/")

    def files(self) -> Sequence[RemoteFile]:
        """Return what is there.

        Raises:
            OSError: It can't be listed.
        """
        self._fs.invalidate_cache()
        found = self._fs.find(self._root, detail=True)
        start = len(self._root) + 1
        return tuple(_file(path[start:], info) for path, info in sorted(found.items()))

    def stat(self, name: str, *, timeout: float, cut: Cut | None = None) -> RemoteFile:
        """Return what the file system tells of a file, asked anew."""
        path = f"{self._root}/{name}"
        self._fs.invalidate_cache(path.rpartition("/")[0])
        info = self._fs.info(path)
        if info.get("type") != "file":
            raise SourceError(f"'{self.url}/{name}' is a {info.get('type')}", again="no")
        return _file(name, info)

    @contextlib.contextmanager
    def read(
        self,
        name: str,
        *,
        start: int = 0,
        stop: int | None = None,
        known: RemoteFile | None = None,
        timeout: float,
        cut: Cut | None = None,
    ) -> Iterator[Delivery]:
        """Open a file or a part of it; see `Source.read`."""
        file = self.stat(name, timeout=timeout)
        if known is not None and known.identity != file.identity:
            start, stop = 0, None
        end = file.size if stop is None else stop
        yield Delivery(file, start, end, self._chunks(file, start, end, timeout, cut or Cut()))

    def _chunks(
        self, file: RemoteFile, start: int, stop: int | None, timeout: float, cut: Cut
    ) -> Iterator[bytes]:
        path = f"{self._root}/{file.name}"
        while (stop is None or start < stop) and not cut.is_made:
            block = self._fs.cat_file(path, start=start, end=min(start + _BLOCK, stop or 2**63))
            if not block:
                break
            yield block
            start += len(block)
        if self.stat(file.name, timeout=timeout).identity != file.identity:
            raise SourceError("the file has changed while it was read", keep=False)

    def close(self) -> None:
        """Nothing: fsspec keeps its connections for others."""


def _file(name: str, info: Mapping[str, Any]) -> RemoteFile:
    size = info.get("size")
    return RemoteFile(
        name,
        size if isinstance(size, int) else None,
        _identity(info),
        ranges=True,
    )


def _identity(info: Mapping[str, Any]) -> str | None:
    for key in _VERSIONS:
        if info.get(key):
            return f"{key}={info[key]}"
    moments = [f"{key}={info[key]}" for key in _MOMENTS if info.get(key)]
    return f"{moments[0]} size={info.get('size')} ino={info.get('ino')}" if moments else None
