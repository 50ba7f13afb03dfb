"""Where shards are fetched from: what a source tells of a file, and how it hands over its bytes."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

from shardproof._base.work import Closing
from shardproof.errors import SourceError


class RemoteFile(msgspec.Struct, frozen=True):
    """One file of a source, as far as the source says.

    Attributes:
        name: Its path inside the source, with ``/`` between parts; untrusted.
        size: Bytes, where that is known.
        identity: Two answers with equal identities are about equal bytes: a strong entity tag, a
            version, a blob id. None where the source has nothing of the kind.
        digest: ``"sha256:<hex>"``, ``"git-sha1:<hex>"`` or what else `shardproof` can prove, where
            the source states it.
        checksums: What else the source states of all of its bytes, such as ``"crc32c:<hex>"`` or
            ``"crc64nvme:<hex>"``. A CRC detects accidents, and proves nothing.
        has_ranges: Whether the source gives parts of it.
        is_lasting: Whether the identity tells versions apart for good. Not if it is a time of
            change: another process does not go on from bytes that were fetched under it.
    """

    name: str
    size: int | None = None
    identity: str | None = None
    digest: str | None = None
    has_ranges: bool = False
    is_lasting: bool = True
    checksums: tuple[str, ...] = ()


class Cancellation:
    """Ends a fetch, or what a source is waiting for, from another thread.

    What waits registers how its wait is ended before it begins to wait. `cancel` calls every way
    that is registered, and the waiting call fails at once.

    Attributes:
        is_cancelled: Whether `cancel` was called.

    Example:
        >>> cancellation = Cancellation()
        >>> with cancellation.register(lambda: print("closed the connection")):
        ...     cancellation.cancel()
        closed the connection
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ways: list[Callable[[], None]] = []
        self.is_cancelled = False

    @contextlib.contextmanager
    def register(self, way: Callable[[], None]) -> Iterator[None]:
        """Call ``way`` if the work of this context is cancelled; at once if it was already."""
        with self._lock:
            self._ways.append(way)
            too_late = self.is_cancelled
        try:
            if too_late:
                way()
            yield
        finally:
            with self._lock:
                self._ways.remove(way)

    def cancel(self) -> None:
        """Cancel the work: call every way that is registered now, or will be."""
        with self._lock:
            self.is_cancelled = True
            for way in self._ways:
                way()

    def raise_if_cancelled(self) -> None:
        """Raise SourceError if the work is cancelled: for what waits in short steps."""
        if self.is_cancelled:
            raise SourceError("it is no longer wanted", kind="unusable")


SendRequest = Callable[[Callable[[float, Cancellation | None], Any]], Any]
"""Makes a request, which is given seconds for one wait and what cancels it."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadRequest:
    """What a source is asked for: the bytes of a file, or of a part of it.

    Attributes:
        name: The file's name.
        start: The first byte.
        stop: The byte behind the last one; None for the end of the file.
        known: What an earlier response said. A part is given only of that very file; if the source
            has another one by now, it gives the whole file, or an identity that differs.
        timeout: Seconds for one wait, not for all of them together.

    Example:
        >>> ReadRequest("0.bin", start=100).stop is None
        True
    """

    name: str
    start: int = 0
    stop: int | None = None
    known: RemoteFile | None = None
    timeout: float = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Response:
    """What a source answers to a request: what it says of the file, and bytes as they come.

    Attributes:
        file: What the answer says of the file: its whole size, its identity.
        start: Where in the file the bytes begin. 0 although more was asked for: the source gives
            the whole file instead.
        stop: Where they end; None where the answer doesn't say, and the end is the end of file.
        chunks: The bytes, in order, as they come.
        is_framed: Whether an end that is not the right one would be an error. False for an answer
            that ends with its connection, whatever ended that.
        is_page: Whether they are a web page, as a login or an error is, under another name.
        has_ranges: Whether a part of the file could be asked for. False where it is known that only
            whole files are given, so that no later fetch could go on from what has come.
    """

    file: RemoteFile
    start: int
    stop: int | None
    chunks: Iterator[bytes]
    is_framed: bool = True
    is_page: bool = False
    has_ranges: bool = True


@runtime_checkable
class Source(Protocol):
    """Where shards are fetched from.

    Implement these to fetch by a transport of your own that can read ranges; one that only fetches
    whole files needs no more than a callable: `CallableSource`. What goes wrong is a
    `shardproof.SourceError` or an `OSError`: the fetch tries again, from where it was.

    Attributes:
        url: Where it is, without credentials: for messages, logs and the cache's directories.
    """

    @property
    def url(self) -> str:
        """Where it is, without credentials."""

    def files(self) -> Sequence[RemoteFile]:
        """Return what is there."""

    def stat(
        self, name: str, *, timeout: float, cancellation: Cancellation | None = None
    ) -> RemoteFile:
        """Return what the source tells of one file.

        Args:
            name: Its name.
            timeout: Seconds for one wait, not for all of them together.
            cancellation: Ends the call from another thread.
        """

    def read(
        self, request: ReadRequest, cancellation: Cancellation | None = None
    ) -> AbstractContextManager[Response]:
        """Open a file, or a part of it, for one pass.

        Args:
            request: Which bytes of which file.
            cancellation: Ends the call, and what the response waits for, from another thread.
        """

    def close(self) -> None:
        """Close the connections; nothing is read any more."""


class SourceContext(Closing):
    """Closes a source at the end of a ``with`` block."""

    def close(self) -> None:
        """Close the connections, if there are any of its own; nothing is read any more."""


Source.register(SourceContext)  # so that to ask whether it is one takes no walk over its methods


def refuse_other(file: object) -> None:
    """Raise SourceError if what a source tells of a file is no `RemoteFile`."""
    if not isinstance(file, RemoteFile):
        problem = f"expected a RemoteFile, the source returned {type(file).__name__}"
        raise SourceError(problem, kind="invalid")
