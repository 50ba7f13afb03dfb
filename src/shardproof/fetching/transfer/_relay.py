"""Threads that read from a source, and a consumer that waits for them no longer than it will.

A thread that waits for a network can't be told to stop; what it waits for can be cut. So whoever
wants the bytes does not read them: it takes them from a queue, watches the clock, and cuts.
"""

import contextlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from shardproof._base import threads as _threads
from shardproof._base.mailbox import Mailbox
from shardproof._base.messages import shown, traced, with_kind
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import Cut, Delivery, RemoteFile, Source
from shardproof.fetching.transfer._clock import Clock
from shardproof.fetching.transfer._limits import Limits
from shardproof.fetching.transfer._spans import Span, Spans

__all__ = ["Answered", "Came", "call", "refuse_other", "relay"]

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

Result = TypeVar("Result")


class Answered(NamedTuple):
    """The source was asked for what begins at ``asked``, and this is the answer."""

    asked: int
    answer: Delivery


class Came(NamedTuple):
    """Bytes of the file."""

    at: int
    chunks: Sequence[bytes]
    n_bytes: int


class _Ended(NamedTuple):
    """A thread is done, or an error ended it."""

    error: SourceError | None


Event = Answered | Came


class _Readers:
    """Threads that read spans of one file, into a mailbox that holds a few MiB."""

    def __init__(
        self, source: Source, name: str, spans: Spans, known: RemoteFile | None, timeout: float
    ) -> None:
        self._source, self._name, self._spans = source, name, spans
        self._known, self._timeout = known, timeout
        self.cut = Cut()
        self._n_started = 0
        self.events: Mailbox[Event | _Ended] = Mailbox()
        self._room: Mailbox[None] = Mailbox()
        for _ in range(_QUEUED):
            self._room.put(None)
        self.threads = [
            threading.Thread(target=self._run, name=f"shardproof-fetch-{n}", daemon=True)
            for n in range(spans.connections)
        ]

    def start(self, n_threads: int) -> int:
        """Let so many threads run in all; return how many were started now."""
        begun = self.threads[self._n_started : n_threads]
        for thread in begun:
            _threads.start(thread)
            self._n_started += 1
        return len(begun)

    def _run(self) -> None:
        try:
            while not self.cut.is_made and (span := self._spans.take()):
                self._read(span)
        except BaseException as error:  # SystemExit, too: a source may call what ends a program
            self._put(_Ended(_as_source_error(error)))
        else:
            self._put(_Ended(None))

    def _read(self, span: Span) -> None:
        with self._source.read(
            self._name,
            start=span.at,
            stop=span.stop,
            known=self._known,
            timeout=self._timeout,
            cut=self.cut,
        ) as delivery:
            refuse_other(delivery.file)
            self._put(Answered(span.at, delivery))
            if delivery.start != span.at:
                span.at, span.stop = delivery.start, delivery.stop
            for chunks, n_bytes in _batches(delivery.chunks):
                at = span.at
                wanted = self._spans.advance(span, n_bytes)
                self._put(Came(at, _first(chunks, n_bytes, wanted), wanted))
                if self.cut.is_made or wanted < n_bytes:
                    break
        self._spans.done(span)

    def _put(self, event: Event | _Ended) -> None:
        while not self.cut.is_made:
            with contextlib.suppress(queue.Empty):
                self._room.get(timeout=_TICK)
                self.events.put(event)
                return

    def taken(self) -> None:
        """There is room for one more event."""
        self._room.put(None)


def _batches(chunks: Iterator[bytes]) -> Iterator[tuple[list[bytes], int]]:
    """Small chunks together, unless they come slowly; what came before an error comes too."""
    batch: list[bytes] = []
    n_bytes, began = 0, 0.0  # the first chunk comes at once
    failure = None
    try:
        for chunk in chunks:
            _refuse_no_bytes(chunk)
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


def refuse_other(file: object) -> None:
    """Raise if what a source tells of a file is something else.

    Raises:
        SourceError: It is.
    """
    if not isinstance(file, RemoteFile):
        problem = f"expected a RemoteFile, the source tells {type(file).__name__}"
        raise SourceError(problem, again="no", keep=False)


def _refuse_no_bytes(chunk: object) -> None:
    try:
        memoryview(chunk)  # type: ignore[arg-type] # as it may turn out
    except TypeError:
        problem = f"expected bytes, the source gives {type(chunk).__name__}"
        raise SourceError(problem, again="no", keep=False) from None


def _first(chunks: Sequence[bytes], n_bytes: int, wanted: int) -> Sequence[bytes]:
    return chunks if n_bytes == wanted else [b"".join(chunks)[:wanted]]


def relay(
    source: Source,
    name: str,
    spans: Spans,
    *,
    known: RemoteFile | None,
    limits: Limits,
    clock: Clock,
) -> Generator[Event, None, None]:
    """Yield what the source answers and what comes; closing it ends the threads.

    Raises:
        SourceError: The source did not give it, or not in time, or too slowly.
        StoppedError: The clock was stopped.
    """
    readers = _Readers(source, name, spans, known, clock.left(limits.stall_after))
    pace = _Pace(limits, clock)
    running = 0
    try:
        running += readers.start(_AT_FIRST)
        while running:
            event = pace.next(readers.events)
            readers.taken()
            if isinstance(event, _Ended):
                running -= 1
                if event.error is not None:
                    raise event.error
                continue
            if isinstance(event, Came) and pace.count(event.n_bytes) < _FAST:
                running += readers.start(spans.connections)
            yield event
    finally:
        readers.cut.now()
        _join(readers.threads)


class _Pace:
    """Whether enough comes, in time."""

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._since, self._came = time.monotonic(), 0
        self._first: float | None = None

    def count(self, n_bytes: int) -> float:
        """Take in that bytes came; return how many of them come a second, once that is known."""
        self._came += n_bytes
        now = time.monotonic()
        self._first = self._first or now
        seconds = now - self._first
        return self._came / seconds if seconds >= _LOOK_SECONDS else math.inf

    def next(self, events: Mailbox[Any]) -> Any:
        """Return the next event.

        Raises:
            SourceError: It did not come in time.
            StoppedError: It is wanted no more.
        """
        while True:
            self._look()
            try:
                return events.get(timeout=max(1e-3, self._clock.left(_TICK)))
            except queue.Empty:
                pass

    def _look(self) -> None:
        self._clock.go_on()
        seconds = time.monotonic() - self._since
        if seconds < self._limits.stall_after:
            return
        if self._came < max(1.0, self._limits.min_speed * seconds):
            problem = f"stalled: {self._came} bytes in {seconds:.3g}s"
            raise SourceError(problem, late=True)
        self._since, self._came = time.monotonic(), 0
        self._first = None


def call(work: Callable[[Cut], Result], limits: Limits, clock: Clock) -> Result:
    """Return what a call returns that may wait for a network, if it does so in time.

    Raises:
        SourceError: It did not, or it failed.
        StoppedError: The clock was stopped.
    """
    cut = Cut()
    results: Mailbox[tuple[bool, Any]] = Mailbox()

    def run() -> None:
        try:
            results.put((True, work(cut)))
        except BaseException as error:  # as above
            results.put((False, _as_source_error(error)))

    thread = threading.Thread(target=run, name="shardproof-ask", daemon=True)
    try:
        _threads.start(thread)
        is_done, result = _Pace(limits, clock).next(results)
    finally:
        cut.now()
        _join([thread])
    if not is_done:
        raise result
    return result  # type: ignore[no-any-return]


def _as_source_error(error: BaseException) -> SourceError:
    """Whatever a transport raises, its fetch has failed; a thing that is not there is not there."""
    if isinstance(error, SourceError):
        return error
    again: Literal["yes", "once"] = "once" if isinstance(error, FileNotFoundError) else "yes"
    source_error = SourceError(with_kind(error), again=again)
    source_error.__cause__ = traced(error)
    return source_error


def _join(threads: Sequence[threading.Thread]) -> None:
    """Wait for threads whose connections were cut.

    What can't be cut (a name look-up, a transport of the user's own) is left behind after a while:
    its thread ends with it or with the process, and what it does is not looked at any more.
    """
    end = time.monotonic() + _JOIN_SECONDS
    for thread in threads:
        # One whose start was interrupted is listed before it lives.
        while not thread.is_alive() and thread in threading.enumerate() and time.monotonic() < end:
            time.sleep(1e-3)
        if thread.is_alive():
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                logger.warning(
                    "A call that can't be cut is left behind in thread %s", shown(thread.name)
                )
