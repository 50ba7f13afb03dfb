"""Any file system of fsspec as a source: s3://, gs://, file://, memory:// and others."""

import contextlib
import errno
import importlib
import inspect
import logging
import os
import re
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, cast

from shardproof._base import digest
from shardproof._base.arguments import checked
from shardproof._base.messages import WRONG_USAGE, plain, quoted, told, traced, with_kind
from shardproof.errors import SourceError, SourceErrorKind
from shardproof.fetching.sources._checksums import stated_in
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    SourceContext,
)
from shardproof.fetching.sources._store_errors import explaining
from shardproof.fetching.sources._urls import bare, has_no_host, is_on_disk, is_web, secrets_of

logger = logging.getLogger("shardproof.fetching")

_BLOCK = 8 * 2**20
_MAX_ENTRIES = 1_000_000  # in all folders, half a KiB each; some servers have folders without end
_MAX_TEXT = 256 * 2**20  # characters in all of their paths

_USED = ("fsspec.archive", "fsspec.asyn", "fsspec.core", "fsspec.implementations.chained")
"""What is imported while the caller waits: a fork in an import of a thread breaks the child."""

_NO_BUCKET = re.compile(r"(?i)(?:^|::)(?:s3a?|gcs|gs|abfss?|az):///")
_VERSIONS = ("VersionId", "version_id", "generation", "ETag", "etag", "md5Hash", "content_md5")
_MOMENTS = ("mtime", "LastModified", "last_modified", "updated", "created")
_NO_VERSION = {"", "None", "null"}  # what a bucket says that keeps no versions (any more)


class FsspecSource(SourceContext):
    """Files below one address of a file system that fsspec knows.

    Credentials are those of the file system's own library: for ``s3://`` those of the AWS tools.
    Whether a file has changed is told by its version, entity tag or generation, where there is one,
    and by size and time of change otherwise; it is looked at before and after each reading. The
    file system is opened when something is asked of it, and by each process that is forked anew.
    Checksums of whole objects that S3 or Cloud Storage states are taken; entity tags never are.

    Args:
        url: ``s3://bucket/folder``, ``gs://bucket``, ``file:///folder``, ``memory://folder``, ...
        **options: For the file system's class, such as ``anon=True``.

    Raises:
        ValueError: An address that fsspec does not know, or whose host can't be told.
        ImportError: The package for it is not installed; the text says which.

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
        self.url = bare(url)
        if has_no_host(url):
            problem = "a host and its port; in a password, write / as %2F, ? as %3F, # as %23"
            raise ValueError(f"url: expected {problem}; found {quoted(self.url, 1000)}")
        if _NO_BUCKET.search(url):  # whose packages take a folder for one
            found = quoted(self.url, 1000)
            raise ValueError(f"url: expected a bucket, is a variable not set? Found {found}")
        for name in _USED:
            with contextlib.suppress(ImportError):  # what an older version has not
                importlib.import_module(name)
        for scheme in url.partition("://")[0].split("::"):
            _refuse_unknown(scheme)
        self._address, self._options = url, options
        # A parent's stays, unused: its end might be told to the server that the parent uses.
        self._opened_by: dict[int, tuple[Any, str]] = {}

    @property
    def _opened(self) -> tuple[Any, str]:
        """The file system, and where in it the files are; each process has its own."""
        process = os.getpid()
        if process in self._opened_by:
            return self._opened_by[process]
        from fsspec import asyn  # noqa: PLC0415 - takes 60 ms
        from fsspec.core import url_to_fs  # noqa: PLC0415 - as above

        if self._opened_by and not hasattr(asyn, "reset_after_fork"):
            # What fsspec does by itself from 2025.5 on: a thread of the parent is in no child.
            asyn.reset_lock()
        # fsspec keeps what it opens for good, for each thread again.
        options = {"skip_instance_cache": True, **self._options}
        try:
            is_local = is_on_disk(self._address)  # then there is no chain, whatever its name
            filesystem, root = url_to_fs("file:///" if is_local else self._address, **options)
            root = filesystem._strip_protocol(self._address) if is_local else root
            paths = [part.partition("://")[2] for part in self._address.split("::")]
            path = next(filter(None, paths), "") if root else ""  # no root: all of an archive
            # A path that lost what stands behind a mark is that of something else; and below an
            # address of the web with a query there is nothing.
            for mark in "?#":
                if (mark in root) if is_web(root) else (mark in path and mark not in root):
                    problem = f"an address without {quoted(mark)}, which would end its path"
                    raise ValueError(f"expected {problem}")
        except Exception as error:
            tells = self._tells_secret(error)
            why = type(error).__name__ if tells else with_kind(error)
            raise SourceError(
                f"{quoted(self.url, 1000)} can't be opened: {why}",
                kind="unusable" if isinstance(error, WRONG_USAGE) else "broken",
            ) from (traced(error) if not tells else None)
        self._opened_by[process] = filesystem, root.rstrip("/")
        return self._opened_by[process]

    def _tells_secret(self, error: Exception) -> bool:
        """Whether a traceback of an error has a password or a query of the address in it."""
        text = "".join(traceback.format_exception(error))
        return any(each in text for each in secrets_of(self._address))

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise what `explaining` makes of an error; its kind alone where it tells a secret."""
        try:
            with explaining():
                yield
        except Exception as error:
            if not self._tells_secret(error):
                raise
            is_refused = isinstance(error, FileNotFoundError)
            kind: SourceErrorKind = "refused" if is_refused else "broken"
            kind = error.kind if isinstance(error, SourceError) else kind
            raise SourceError(type(error.__cause__ or error).__name__, kind=kind) from None

    @property
    def _fs(self) -> Any:
        return self._opened[0]

    @property
    def _root(self) -> str:
        return self._opened[1]

    def files(self, cancellation: Cancellation | None = None) -> Sequence[RemoteFile]:
        """Return what is there; a link to a directory is not followed, and a warning says so.

        Args:
            cancellation: By which another thread ends the call, before the next folder is listed.

        Raises:
            SourceError: The file system can't be opened; or there are too many files.
            OSError: It can't be listed, or a look where a link leads failed.
        """
        from fsspec import AbstractFileSystem  # noqa: PLC0415 - takes 60 ms
        from fsspec.asyn import AsyncFileSystem  # noqa: PLC0415 - as above

        self._fs.invalidate_cache()
        kind = type(self._fs)
        # The search of fsspec itself leaves out what can't be listed: EIO, a folder not to be read.
        leaves_out = kind.find is AbstractFileSystem.find
        with self._explaining():
            if leaves_out or getattr(kind, "_find", None) is AsyncFileSystem._find:
                found = dict(self._walked(cancellation or Cancellation()))
            else:
                found = self._fs.find(self._root, detail=True)
        start = len(self._root)
        has_ranges = _has_ranges(self._fs)
        return tuple(
            _file(path[start:].removeprefix("/"), info, has_ranges=has_ranges)
            for path, info in sorted(found.items())
        )

    def _walked(self, cancellation: Cancellation) -> Iterator[tuple[str, Mapping[str, Any]]]:
        where = f"the listing of {quoted(self.url, 1000)}"
        todo, n_entries, n_text = [self._root], 0, 0
        while todo:
            directory = todo.pop()
            entries: Sequence[Mapping[str, Any]] = ()
            with contextlib.suppress(FileNotFoundError):  # it is gone by now
                entries = self._fs.ls(directory, detail=True)
            n_entries += len(entries)
            n_text += sum(len(entry["name"]) for entry in entries)
            if cancellation.is_cancelled:
                raise SourceError(f"{where} is no longer wanted", kind="unusable")
            if n_entries > _MAX_ENTRIES or n_text > _MAX_TEXT:
                problem = f"more than {_MAX_ENTRIES} entries, or names too long"
                raise SourceError(f"{where} has {problem}: name a folder in it", kind="unusable")
            for entry in entries:
                path, info = entry["name"].rstrip("/"), entry
                if entry.get("islink"):  # fsspec lists a size of 0 for what it could not look at
                    info = {"type": "link"}  # that leads nowhere: a read of it says so
                    with contextlib.suppress(FileNotFoundError):
                        info = self._fs.info(path)
                if info["type"] != "directory":
                    yield path, info
                elif info is not entry:
                    text = "%s leads to a directory, and is not followed"
                    logger.warning(text, quoted(path, 1000))
                elif path != directory:
                    todo.append(path)

    def stat(
        self, name: str, *, timeout: float, cancellation: Cancellation | None = None
    ) -> RemoteFile:
        """Return what the file system tells of a file, asked anew."""
        path = self._path_of(name)
        self._fs.invalidate_cache(path.rpartition("/")[0])
        with self._explaining():
            info = self._info(path)
        if info.get("type") != "file":
            kind = plain(str(info.get("type")))
            raise SourceError(f"{quoted(f'{self.url}/{name}', 1000)} is a {kind}", kind="unusable")
        return _file(name, info, has_ranges=_has_ranges(self._fs))

    def _info(self, path: str) -> Mapping[str, Any]:
        """Return what the file system tells; s3fs leaves out the checksums that S3 tells it."""
        if hasattr(type(self._fs), "call_s3"):
            bucket, key, version = self._fs.split_path(path)
            how = {"VersionId": version} if version else {}
            # What can't be told without the right to decrypt it, or is a folder, `info` tells.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                head = self._fs.call_s3(
                    "head_object", Bucket=bucket, Key=key, ChecksumMode="ENABLED", **how
                )
                return {**head, "size": head["ContentLength"], "type": "file"}
        return cast("Mapping[str, Any]", self._fs.info(path))

    def _path_of(self, name: str) -> str:
        if is_web(self._root) and set(name) & set("?#"):
            problem = f"{quoted(name)} has '?' or '#' in it, which end a name on the web"
            raise SourceError(problem, kind="unusable")
        return f"{self._root}/{name}"

    @contextlib.contextmanager
    def read(
        self, request: ReadRequest, cancellation: Cancellation | None = None
    ) -> Iterator[Response]:
        """Open a file or a part of it; see `Source.read`."""
        name, timeout, known = request.name, request.timeout, request.known
        file = self.stat(name, timeout=timeout)
        is_other = known is not None and known.identity not in {None, file.identity}
        start, stop = (0, None) if is_other else (request.start, request.stop)
        end = file.size if stop is None else stop
        own = cancellation or Cancellation()

        def chunks() -> Generator[bytes, None, None]:
            at = start
            with self._explaining(), self._reader(self._path_of(name), start) as read:
                while (end is None or at < end) and not own.is_cancelled:
                    block = read(at, min(at + _BLOCK, end or 2**63))
                    if not block:
                        break
                    yield block
                    at += len(block)
            if self.stat(name, timeout=timeout).identity != file.identity:
                raise SourceError("the file has changed while it was read", kind="other-bytes")

        with contextlib.closing(chunks()) as blocks:
            yield Response(file, start, end, blocks)

    def part_of(self, file: RemoteFile, start: int, stop: int) -> bytes:
        """Return bytes of a file that was listed, if it is still that one: of S3 by one request."""
        from fsspec.asyn import sync  # noqa: PLC0415 - takes 60 ms

        path, identity = self._path_of(file.name), file.identity or ""
        with self._explaining():
            if hasattr(type(self._fs), "call_s3") and identity.startswith("ETag="):
                bucket, key, _ = self._fs.split_path(path)
                how = {"Bucket": bucket, "Key": key, "IfMatch": identity.removeprefix("ETag=")}
                answer = self._fs.call_s3("get_object", Range=f"bytes={start}-{stop - 1}", **how)
                with contextlib.closing(answer["Body"]) as body:
                    if answer["ContentLength"] != stop - start:  # of a proxy that gives all of it
                        raise SourceError("it gives no parts of files", kind="unusable")
                    return bytes(sync(self._fs.loop, body.read))
            data = bytes(self._fs.cat_file(path, start=start, end=stop))
            told = self.stat(file.name, timeout=0)
            # A time of change is told by some listings in other words.
            if told.size != file.size or (file.is_lasting and told.identity != file.identity):
                raise SourceError("the file has changed since it was listed", kind="unusable")
            return data

    def put(self, name: str, data: bytes, *, replace: bool = False) -> None:
        """Write a file in one request; a FileExistsError if it is there, and not to be replaced."""
        fs, path, how = self._fs, self._path_of(name), dict[str, Any]()
        with self._explaining():
            if not replace:
                named = inspect.signature(getattr(fs, "_pipe_file", fs.pipe_file)).parameters
                how |= {"mode": "create"} if "mode" in named else {}
                how |= {"overwrite": False} if "overwrite" in named else {}  # adlfs
                # Of older packages: then another process may be faster.
                with contextlib.suppress(FileNotFoundError):
                    if not how and fs.info(path):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            fs.pipe_file(path, data, **how)

    @contextlib.contextmanager
    def _reader(self, path: str, start: int) -> Iterator[Callable[[int, int], bytes]]:
        """Yield what reads a file from here to there, opened once: archives seek by reading."""
        from fsspec import AbstractFileSystem  # noqa: PLC0415 - takes 60 ms

        # Asynchronous ones have theirs in the instance.
        if getattr(self._fs.cat_file, "__func__", None) is not AbstractFileSystem.cat_file:
            yield lambda start, stop: self._fs.cat_file(path, start=start, end=stop)
            return
        with self._fs.open(path, "rb") as file:
            if start:
                file.seek(start)
            yield lambda start, stop: file.read(stop - start)


def _refuse_unknown(scheme: str) -> None:
    """Raise if there is no such file system, or what it needs is not installed."""
    from fsspec.registry import get_filesystem_class  # noqa: PLC0415 - takes 60 ms

    try:
        get_filesystem_class(scheme)
    except ValueError:
        known = "hf://, https://, s3:// or another that fsspec knows"
        raise ValueError(
            f"expected an address as {known}, found {quoted(f'{scheme}://')}"
        ) from None
    except ImportError as error:  # which says what to install, and its cause what is missing
        cause = "" if error.__cause__ is None else f" ({told(error.__cause__)})"
        problem = f"{scheme}:// needs a package that is missing: {told(error)}{cause}"
        raise ImportError(problem) from error


def _has_ranges(fs: Any) -> bool:
    """Whether a part of a file costs less than all that is before it."""
    from fsspec.archive import AbstractArchiveFileSystem  # noqa: PLC0415 - as above

    return not isinstance(fs, AbstractArchiveFileSystem)


def _file(name: str, info: Mapping[str, Any], *, has_ranges: bool = True) -> RemoteFile:
    size = info.get("size")
    stated = ((key, str(info.get(key, ""))) for key in _VERSIONS)
    usable = ((key, text) for key, text in stated if text not in _NO_VERSION)
    version = next((f"{k}={text}" for k, text in usable if not text.startswith("W/")), None)
    identity = version
    if version is None:
        moment = next((f"{key}={info[key]}" for key in _MOMENTS if info.get(key)), None)
        identity = moment and f"{moment} size={size} ino={info.get('ino')}"
    checksums = [*stated_in(info)]
    proof = next(iter(digest.provable(checksums)), None)
    return RemoteFile(
        name,
        size if isinstance(size, int) else None,
        identity,
        proof,
        has_ranges=has_ranges,
        is_lasting=version is not None,
        checksums=tuple(text for text in checksums if text != proof),
    )
