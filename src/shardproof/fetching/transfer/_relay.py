"""Read from a source for a consumer that waits no longer than its deadline.

Of web servers in the thread of the consumer, whose waits ask again and again whether to go on. What
waits in another library can't be asked: there threads read, and the consumer takes the bytes from a
queue, watches the deadline, and leaves the threads behind if it must. They also read where a large
file comes slowly, over more connections than one.
"""

import contextlib
import dataclasses
import logging
import math
import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from shardproof._base.messages import shown, traced, with_kind
from shardproof._base.work import Deadline
from shardproof.errors import SourceError
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    Source,
    refuse_other,
)
from shardproof.fetching.transfer._attempts import Limits

logger = logging.getLogger("shardproof.fetching")

_BATCH_BYTES = 2**20
_BATCH_CHUNKS = 512  # below IOV_MAX, which is 1024: writev(2)
_BATCH_SECONDS = 0.1
_QUEUED = 8
_AT_FIRST = 1
_LOOK_SECONDS = 0.05
_FAST = 200e6  # bytes a second; more connections than one are for what is slower
_TICK = 0.1
_JOIN_SECONDS = 1.0
_LEFT_SECONDS = 0.1  # of those, where the work is no longer wanted

_MIN_SPAN = 4 * 2**20  # bytes that are worth a new connection; an open one takes a quarter of it
Result = TypeVar("Result")


class ResponseStarted(NamedTuple):
    """The response to a request for what begins at ``asked``."""

    asked: int
    response: Response


class BytesReceived(NamedTuple):
    """Bytes of the file."""

    at: int
    chunks: Sequence[bytes]
    n_bytes: int


Event = ResponseStarted | BytesReceived
Ended = SourceError | None  # what a thread puts last: the error that ended it, or None


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
        self.most = connections
        self.connections = 1 if connections == 1 else self._useful()

    def _useful(self) -> int:
        to_come = sum(map(_length, (*self._waiting, *self._taken)))
        return max(1, min(self.most, to_come // _MIN_SPAN))

    def give_back(self, span: ByteSpan) -> None:
        """Let others fetch what has not come of a span."""
        with self._lock:
            self._taken.remove(span)
            self._waiting.insert(0, span)

    def share(self, size: int, connections: int) -> None:
        """Share what is taken by a single connection, up to an end that was not known before."""
        with self._lock:
            for span in self._taken:
                span.stop = size
            self.most = connections
            self.connections = self._useful()

    def take(self) -> ByteSpan | None:
        """Return bytes that no connection fetches yet, or half of what one does; None if none."""
        with self._lock:
            if self._waiting:
                span = self._waiting.pop(0)
            else:
                longest = max(self._taken, key=_length, default=None)
                if longest is None or longest.stop is None or _length(longest) < _MIN_SPAN // 2:
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
    return connections > 1 and size is not None and size >= 2 * _MIN_SPAN


class Pace(Cancellation):
    """Knows when too little comes, or too late; so it ends a wait in the thread of its consumer."""

    def __init__(self, limits: Limits, deadline: Deadline) -> None:
        super().__init__()
        self._limits, self._deadline = limits, deadline
        self._since, self._came = time.monotonic(), 0
        self._first: float | None = None

    def count(self, n_bytes: int) -> float:
        """Take in that bytes came; return how many of them come a second, once that is known."""
        self._came += n_bytes
        now = time.monotonic()
        self._first = self._first or now
        seconds = now - self._first
        return self._came / seconds if seconds >= _LOOK_SECONDS else math.inf

    def raise_if_cancelled(self) -> None:
        """Return if all is well; raise if it is no longer wanted, or too little has come."""
        self._deadline.raise_if_stopped()
        seconds = time.monotonic() - self._since
        if seconds >= self._limits.stall_timeout:
            if self._came < max(1.0, self._limits.min_speed * seconds):
                raise SourceError(f"stalled: {self._came} bytes in {seconds:.3g}s", kind="late")
            self._since, self._came = time.monotonic(), 0
            self._first = None

    def next(self, events: "queue.Queue[Result]") -> Result:
        """Return the next event; raise if it does not come in time."""
        while True:
            self.raise_if_cancelled()
            with contextlib.suppress(queue.Empty):
                return events.get(timeout=max(1e-3, self._deadline.left(_TICK)))


def is_patient(source: Source) -> bool:
    """Whether its waits ask their cancellation; another class may wait otherwise."""
    return type(source) in {HttpSource, HubSource}


class _Transfer(NamedTuple):
    """What is read: a file of a source, the one that is known."""

    source: Source
    name: str
    known: RemoteFile | None
    spans: Spans
    timeout: float

    def events(self, span: ByteSpan, cancellation: Cancellation) -> Generator[Event, None, None]:
        """Read a span, and yield what the source answers and what comes."""
        request = ReadRequest(self.name, span.at, span.stop, self.known, self.timeout)
        with self.source.read(request, cancellation) as response:
            refuse_other(response.file)
            yield ResponseStarted(span.at, response)
            is_unsized = response.stop is None and self.spans.connections > 1
            if response.start != span.at or is_unsized:  # then all of it shows if it is too long
                span.at, span.stop = response.start, response.stop
            for chunks, n_bytes in _batches(response.chunks):
                at = span.at
                wanted = self.spans.advance(span, n_bytes)
                first = chunks if n_bytes == wanted else [b"".join(chunks)[:wanted]]
                yield BytesReceived(at, first, wanted)
                if cancellation.is_cancelled or wanted < n_bytes:
                    break


def _batches(chunks: Iterator[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Yield small chunks together, unless they come slowly; an error comes after what came."""
    batch: list[bytes] = []
    n_bytes, began = 0, 0.0  # the first chunk comes at once
    failure = None
    try:
        for chunk in chunks:
            try:
                memoryview(chunk)
            except TypeError:
                problem = f"expected bytes, the source gives {type(chunk).__name__}"
                raise SourceError(problem, kind="invalid") from None
            batch.append(chunk)
            n_bytes += len(chunk)
            if (
                n_bytes >= _BATCH_BYTES
                or len(batch) == _BATCH_CHUNKS
                or time.monotonic() - began > _BATCH_SECONDS
            ):
                yield batch, n_bytes
                batch, n_bytes, began = [], 0, time.monotonic()
    except Exception as error:
        failure = error
    if batch:
        yield batch, n_bytes
    if failure is not None:
        raise failure


def relay(
    source: Source,
    name: str,
    spans: Spans,
    *,
    known: RemoteFile | None,
    limits: Limits,
    deadline: Deadline,
) -> Generator[Event, None, None]:
    """Yield what the source answers and what comes; closing it ends the threads."""
    pace = Pace(limits, deadline)
    transfer = _Transfer(source, name, known, spans, deadline.left(limits.stall_timeout))
    if is_patient(source) and (yield from _here(transfer, pace)):
        return
    readers = _Readers(transfer)
    try:
        running = readers.start(_AT_FIRST)
        while running:
            event = pace.next(readers.events)
            if isinstance(event, SourceError):
                raise event
            if event is None:
                running -= 1
                continue
            if isinstance(event, BytesReceived) and pace.count(event.n_bytes) < _FAST:
                running += readers.start(spans.connections)
            yield event
            running += readers.start(_AT_FIRST)  # of those that are of use by now
    finally:
        readers.cancellation.cancel()
        join_threads(readers.threads, deadline)


def _here(transfer: _Transfer, pace: Pace) -> Generator[Event, None, bool]:
    """Yield what comes, read in this thread; return whether that is all, or others are to help."""
    spans = transfer.spans
    try:
        while (span := spans.take()) is not None:
            n_bytes, seconds, since = 0, 0.0, time.monotonic()
            with contextlib.closing(transfer.events(span, pace)) as events:
                for event in events:
                    seconds += time.monotonic() - since
                    yield event
                    if isinstance(event, BytesReceived):
                        pace.count(event.n_bytes)
                        n_bytes += event.n_bytes
                        # By the time of reads alone: others don't help where processors are busy.
                        is_slow = seconds > _LOOK_SECONDS and n_bytes < _FAST * seconds
                        if is_slow and is_worth_sharing(_length(span), spans.most):
                            spans.give_back(span)
                            return False
                    else:
                        seconds = 0.0  # before the first byte there is one wait for each connection
                    since = time.monotonic()
            spans.done(span)
    except SourceError:
        raise
    except Exception as error:
        raise as_source_error(error) from traced(error)
    return True


class _Readers:
    """Threads that read spans of one file, into a queue that holds a few MiB."""

    def __init__(self, transfer: _Transfer) -> None:
        self._transfer = transfer
        self.cancellation = Cancellation()
        self.events: queue.Queue[Event | Ended] = queue.Queue(_QUEUED)
        self.threads: list[threading.Thread] = []

    def start(self, n_threads: int) -> int:
        """Let so many threads run in all; return how many were started now."""
        n_before = len(self.threads)
        for number in range(n_before, min(n_threads, self._transfer.spans.connections)):
            name = f"shardproof-fetch-{number}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self.threads.append(thread)
        return len(self.threads) - n_before

    def _run(self) -> None:
        spans, cancellation = self._transfer.spans, self.cancellation
        try:
            while not cancellation.is_cancelled and (span := spans.take()):
                for event in self._transfer.events(span, cancellation):
                    self._put(event)
                spans.done(span)
        except BaseException as error:  # SystemExit, too: a source may call what ends a program
            self._put(as_source_error(error))
        else:
            self._put(None)

    def _put(self, event: Event | Ended) -> None:
        while not self.cancellation.is_cancelled:
            with contextlib.suppress(queue.Full):
                self.events.put(event, timeout=_TICK)
                return


def as_source_error(error: BaseException) -> SourceError:
    """Return any error of a transport as one of the source: its fetch has failed."""
    if isinstance(error, SourceError):
        return error
    is_refused = isinstance(error, FileNotFoundError)
    source_error = SourceError(with_kind(error), kind="refused" if is_refused else "broken")
    source_error.__cause__ = traced(error)
    return source_error


def join_threads(threads: Sequence[threading.Thread], deadline: Deadline) -> None:
    """Wait for threads that were cancelled; what can't be (a call of a library) is left soon."""
    end = time.monotonic() + (_LEFT_SECONDS if deadline.stop.is_set() else _JOIN_SECONDS)
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            text = "A call that can't be cut is left behind in thread %s"
            logger.warning(text, shown(thread.name))
