"""Where shards are fetched from: what a source tells of a file, and how it hands over its bytes."""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import msgspec

__all__ = ["Cut", "Delivery", "RemoteFile", "Source"]


class RemoteFile(msgspec.Struct, frozen=True):
    """One file of a source, as far as the source tells.

    Attributes:
        name: Its path inside the source, with ``/`` between parts; untrusted.
        size: Bytes, where that is known.
        identity: Two answers with equal identities are about equal bytes: a strong entity tag, a
            version, a blob id. None where the source has nothing of the kind.
        digest: ``"sha256:<hex>"``, ``"git-sha1:<hex>"`` or what else `shardproof` can prove, where
            the source states it.
        ranges: Whether the source gives parts of it.
        is_lasting: Whether the identity tells versions apart for good. Not if it is a time of
            change: another process does not go on from bytes that were fetched under it.
    """

    name: str
    size: int | None = None
    identity: str | None = None
    digest: str | None = None
    ranges: bool = False
    is_lasting: bool = True


class Cut:
    """Ends, from another thread, what a source is waiting for.

    A source registers how that is done before it waits; whoever has waited long enough calls
    `now`, and the source's call fails at once, whatever it was waiting for.

    Example:
        >>> cut = Cut()
        >>> with cut.by(lambda: print("closed the connection")):
        ...     cut.now()
        closed the connection
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ways: list[Callable[[], None]] = []
        self.is_made = False

    @contextlib.contextmanager
    def by(self, way: Callable[[], None]) -> Iterator[None]:
        """Register how to end what is done in this context; called at once if it is too late."""
        with self._lock:
            self._ways.append(way)
            too_late = self.is_made
        try:
            if too_late:
                way()
            yield
        finally:
            with self._lock:
                self._ways.remove(way)

    def now(self) -> None:
        """End it."""
        with self._lock:
            self.is_made = True
            for way in self._ways:
                way()


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """Bytes of a file on their way.

    Attributes:
        file: What the answer says of the file: its whole size, its identity.
        start: Where in the file the bytes begin. 0 although more was asked for: the source gives
            the whole file instead.
        stop: Where they end; None where the answer doesn't say, and the end is the end of file.
        chunks: The bytes, in order, as they come.
        framed: Whether an end that is not the right one would be an error. False for an answer that
            ends with its connection, whatever ended that.
        is_page: Whether they are a web page, as a login or an error is, under another name.
        has_parts: Whether a part of the file could be asked for. False where it is known that only
            whole files are given, so that nobody could go on from what has come.
    """

    file: RemoteFile
    start: int
    stop: int | None
    chunks: Iterator[bytes]
    framed: bool = True
    is_page: bool = False
    has_parts: bool = True


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

    def stat(self, name: str, *, timeout: float, cut: Cut | None = None) -> RemoteFile:
        """Return what the source tells of one file.

        Args:
            name: Its name.
            timeout: Seconds for a wait, not for all of them together.
            cut: By which another thread ends the call.
        """

    def read(
        self,
        name: str,
        *,
        start: int = 0,
        stop: int | None = None,
        known: RemoteFile | None = None,
        timeout: float,
        cut: Cut | None = None,
    ) -> AbstractContextManager[Delivery]:
        """Open a file, or a part of it, for one pass.

        Args:
            name: Its name.
            start: The first byte.
            stop: The byte behind the last one; None for the end.
            known: What an earlier answer said: a part is given only of that very file. If it is
                another one by now, the whole file is given, or an identity that differs.
            timeout: Seconds for a wait, not for all of them together.
            cut: By which another thread ends the call and the delivery.
        """

    def close(self) -> None:
        """Give up connections; nothing is read any more."""
