"""Share out the bytes of a file that are still to be fetched among connections."""

import dataclasses
import threading
from collections.abc import Iterable

MIN_SPAN = 4 * 2**20
"""Bytes for which another connection is not worth opening; an open one takes a quarter of that."""


@dataclasses.dataclass(slots=True)
class ByteSpan:
    """Bytes that one connection fetches, from ``at`` up to ``stop``, which may come nearer."""

    at: int
    stop: int | None


class Spans:
    """What is to be fetched, shared out among connections; who is done early halves the longest."""

    def __init__(self, spans: Iterable[tuple[int, int | None]], connections: int) -> None:
        self._lock = threading.Lock()
        self._waiting = [ByteSpan(*span) for span in spans]
        self._taken: list[ByteSpan] = []
        self._most = connections
        self.connections = 1 if connections == 1 else self._useful()

    def _useful(self) -> int:
        to_come = sum(map(_length, (*self._waiting, *self._taken)))
        return max(1, min(self._most, to_come // MIN_SPAN))

    def give_back(self, span: ByteSpan) -> None:
        """Let others fetch what has not come of a span."""
        with self._lock:
            self._taken.remove(span)
            self._waiting.insert(0, span)

    def are_shared(self, span: ByteSpan) -> bool:
        """Whether further connections could help with a span."""
        return self._most > 1 and _length(span) >= 2 * MIN_SPAN

    def share(self, size: int, connections: int) -> None:
        """Share what is taken by a single connection, up to an end that was not known before."""
        with self._lock:
            for span in self._taken:
                span.stop = size
            self._most = connections
            self.connections = self._useful()

    def take(self) -> ByteSpan | None:
        """Return bytes that no connection fetches yet, or half of what one does; None if none."""
        with self._lock:
            if self._waiting:
                span = self._waiting.pop(0)
            else:
                longest = max(self._taken, key=_length, default=None)
                if longest is None or longest.stop is None or _length(longest) < MIN_SPAN // 2:
                    return None
                span = ByteSpan(longest.at + _length(longest) // 2, longest.stop)
                longest.stop = span.at
            self._taken.append(span)
            return span

    def advance(self, span: ByteSpan, n_bytes: int) -> int:
        """Count bytes as fetched, and return how many of them belong to the span."""
        with self._lock:
            if span.stop is not None:
                n_bytes = max(0, min(n_bytes, span.stop - span.at))
            span.at += n_bytes
            return n_bytes

    def done(self, span: ByteSpan) -> None:
        """Take a span off the list of those that are shared."""
        with self._lock:
            self._taken.remove(span)


def _length(span: ByteSpan) -> int:
    return 0 if span.stop is None else span.stop - span.at


def is_worth_sharing(size: int | None, connections: int) -> bool:
    """Whether a file is large enough for more than one connection."""
    return connections > 1 and size is not None and size >= 2 * MIN_SPAN


def missing(have: list[tuple[int, int]], size: int | None) -> list[tuple[int, int | None]]:
    """Return what is not covered by ``have``, which is sorted and disjoint."""
    gaps: list[tuple[int, int | None]] = []
    at = 0
    for start, stop in have:
        if start > at:
            gaps.append((at, start))
        at = stop
    if size is None or at < size:
        gaps.append((at, size))
    return gaps
