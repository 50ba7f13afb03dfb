"""Read from a source in threads, for a consumer that waits no longer than its deadline.

A thread that waits for a network can't be told to stop, but its connection can be cut. So the
consumer does not read: it takes the bytes from a queue, watches the deadline, and cuts.
"""

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from shardproof._base.messages import shown, traced, with_kind
from shardproof._base.work import Deadline, apart
from shardproof.errors import SourceError
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._source import (
    Cancellation,
    NotConnectedError,
    ReadRequest,
    RemoteFile,
    Response,
    Source,
    Watch,
    refuse_other,
)
from shardproof.fetching.transfer._attempts import Limits
from shardproof.fetching.transfer._spans import ByteSpan, Spans

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
_SHORT = 2**20  # bytes of an answer for which no other thread is worth starting

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
Ended = SourceError | None
"""What a thread tells at its end: the error that ended it, or None."""


class _Readers:
    """Threads that read spans of one file, into a mailbox that holds a few MiB."""

    def __init__(
        self, source: Source, name: str, spans: Spans, known: RemoteFile | None, pace: "_Pace"
    ) -> None:
        self._source, self._name, self._spans = source, name, spans
        self._known, self._timeout = known, pace.longest_wait
        self.cancellation = Watch(pace.look)
        self.events: queue.SimpleQueue[Event | Ended] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.threads: list[threading.Thread] = []

    def here(self) -> Generator[Event, None, None]:
        """Return what comes of the first span, to be read in this thread; or by others: `start`."""
        span = self._spans.take()
        assert span is not None  # noqa: S101 - nothing was taken before
        return self._events(span)

    def start(self, n_threads: int, begun: Iterator[Event] | None = None) -> int:
        """Let so many threads run in all; return how many were started now.

        The first of them goes on with what was ``begun`` in another thread.
        """
        n_before = len(self.threads)
        if not n_before:
            self.cancellation.hand_over()
            for _ in range(_QUEUED):
                self._room.put(None)
        for number in range(n_before, min(n_threads, self._spans.connections)):
            name = f"shardproof-fetch-{number}"
            thread = threading.Thread(target=self._run, args=(begun,), name=name, daemon=True)
            self.threads.append(thread)  # before it starts: an interrupt may come then
            _start(thread)
            begun = None
        return len(self.threads) - n_before

    def _run(self, begun: Iterator[Event] | None) -> None:
        try:
            if begun is not None:
                self._put_all(begun)
            while not self.cancellation.is_cancelled and (span := self._spans.take()):
                self._put_all(self._events(span))
        except BaseException as error:  # SystemExit, too: a source may call what ends a program
            self._put(_as_source_error(error))
        else:
            self._put(None)

    def _put_all(self, events: Iterator[Event]) -> None:
        for event in events:
            self._put(event)

    def _events(self, span: ByteSpan) -> Generator[Event, None, None]:
        """Read a span, and yield what the source answers and what comes."""
        request = ReadRequest(self._name, span.at, span.stop, self._known, self._timeout)
        with self._source.read(request, self.cancellation) as response:
            refuse_other(response.file)
            yield ResponseStarted(span.at, response)
            is_unsized = response.stop is None and self._spans.connections > 1
            if response.start != span.at or is_unsized:  # then all of it shows if it is too long
                span.at, span.stop = response.start, response.stop
            for chunks, n_bytes in _batches(response.chunks):
                at = span.at
                wanted = self._spans.advance(span, n_bytes)
                first = chunks if n_bytes == wanted else [b"".join(chunks)[:wanted]]
                yield BytesReceived(at, first, wanted)
                if self.cancellation.is_cancelled or wanted < n_bytes:
                    break
        self._spans.done(span)

    def _put(self, event: Event | Ended) -> None:
        while not self.cancellation.is_cancelled:
            with contextlib.suppress(queue.Empty):
                self._room.get(timeout=_TICK)
                self.events.put(event)
                return

    def taken(self) -> None:
        """Make room for one more event."""
        self._room.put(None)


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
    pace = _Pace(limits, deadline)
    readers = _Readers(source, name, spans, known, pace)
    running = 0
    try:
        begun: Iterator[Event] | None = None
        if type(source) is HttpSource and spans.is_one:  # others may wait for ever
            begun = yield from _here(readers, spans, pace)
            if begun is None:
                return
        running += readers.start(_AT_FIRST, begun)
        while running:
            event = pace.next(readers.events)
            readers.taken()
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
        _join(readers.threads)


def _here(
    readers: _Readers, spans: Spans, pace: "_Pace"
) -> Generator[Event, None, Iterator[Event] | None]:
    """Yield what comes, read in this thread; return what is left for others, None if nothing is."""
    events = readers.here()
    try:
        for event in events:
            if isinstance(event, BytesReceived):
                pace.count(event.n_bytes)
            yield event
            if isinstance(event, ResponseStarted) and not _is_short(event.response, spans):
                return events
    except NotConnectedError:
        spans.give_back()
        return iter(())
    except GeneratorExit:
        events.close()
        raise
    except SourceError:
        raise
    except Exception as error:
        raise _as_source_error(error) from traced(error)
    return None


def _is_short(response: Response, spans: Spans) -> bool:
    stop = response.stop
    return spans.connections == 1 and stop is not None and stop - response.start <= _SHORT


class _Pace:
    """Waits for events, and gives up when too little comes, or too late."""

    def __init__(self, limits: Limits, deadline: Deadline) -> None:
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

    @property
    def longest_wait(self) -> float:
        """Seconds that a source may wait at once."""
        return self._deadline.left(self._limits.stall_timeout)

    def look(self) -> None:
        """Return if all is well; raise if it is not wanted any more, or too little has come."""
        self._deadline.raise_if_stopped()
        seconds = time.monotonic() - self._since
        if seconds >= self._limits.stall_timeout:
            if self._came < max(1.0, self._limits.min_speed * seconds):
                problem = f"stalled: {self._came} bytes in {seconds:.3g}s"
                raise SourceError(problem, kind="late")
            self._since, self._came = time.monotonic(), 0
            self._first = None

    def next(self, events: "queue.SimpleQueue[Any]") -> Any:
        """Return the next event; raise if it does not come in time."""
        while True:
            self.look()
            try:
                return events.get(timeout=max(1e-3, self._deadline.left(_TICK)))
            except queue.Empty:
                pass


def call(
    work: Callable[[Cancellation], Result],
    limits: Limits,
    deadline: Deadline,
    *,
    source: Source | None = None,
) -> Result:
    """Return what a call returns that may wait for a network, if it does so in time.

    A web server that is the ``source`` and connected is asked in this thread.
    """
    if type(source) is HttpSource:  # others may wait for ever
        with contextlib.suppress(NotConnectedError):
            return _called_here(work, _Pace(limits, deadline))
    cancellation = Cancellation()
    results: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def run() -> None:
        try:
            results.put((True, work(cancellation)))
        except BaseException as error:  # as above
            results.put((False, _as_source_error(error)))

    thread = threading.Thread(target=run, name="shardproof-ask", daemon=True)
    try:
        _start(thread)
        is_done, result = _Pace(limits, deadline).next(results)
    finally:
        cancellation.cancel()
        _join([thread])
    if not is_done:
        raise result
    return result  # type: ignore[no-any-return]


def _called_here(work: Callable[[Cancellation], Result], pace: _Pace) -> Result:
    try:
        return work(Watch(pace.look))
    except (NotConnectedError, SourceError):
        raise
    except Exception as error:
        raise _as_source_error(error) from traced(error)


def _as_source_error(error: BaseException) -> SourceError:
    """Return any error of a transport as one of the source: its fetch has failed."""
    if isinstance(error, SourceError):
        return error
    is_refused = isinstance(error, FileNotFoundError)
    source_error = SourceError(with_kind(error), kind="refused" if is_refused else "broken")
    source_error.__cause__ = traced(error)
    return source_error


def _start(thread: threading.Thread) -> None:
    """Start a thread; not in the main one, where an interrupt would break the wait for it."""
    apart(lambda _: thread.start())


def _join(threads: Sequence[threading.Thread]) -> None:
    """Wait for threads that were cut; what can't be (a name look-up) is left after a while."""
    end = time.monotonic() + _JOIN_SECONDS
    for thread in threads:
        # One whose start was interrupted is listed before it lives.
        while not thread.is_alive() and thread in threading.enumerate() and time.monotonic() < end:
            time.sleep(1e-3)
        if thread.is_alive():
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                text = "A call that can't be cut is left behind in thread %s"
                logger.warning(text, shown(thread.name))
