"""Do many small looks: one after the other where each is fast, in threads where it must wait.

A look at a file takes microseconds on a warm local disk, where threads only fight for the
interpreter's lock, and a millisecond on a busy network file system, where 64 of them wait together.
Which it is can't be known beforehand, and changes half-way when the cached part ends: so a few
looks are timed every now and then, and the median decides about the next run.
"""

import collections
import contextlib
import os
import resource
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future as Future  # noqa: PLC0414 - for others
from concurrent.futures import ThreadPoolExecutor, wait  # here, since no thread is to import it
from typing import Any, Self, TypeVar

from shardproof._base.addresses import RemoteDirectory, mounted
from shardproof._base.work import TICK, Calls, Stop, current, go_on, is_main, tell_done

MAX_THREADS = 64
"""At a millisecond a call, 96 and 128 were no faster; and a metadata server has other users."""

SLOW_SECONDS = 100e-6
"""Median time that a look waits from which on threads are faster; what it computes counts for
nothing, as only one of them computes at a time."""

_SAMPLE = 3  # an odd number, whose median is not moved by one slow look
_SHORT_RUN = 512  # if the file system is slow by now, these look one after the other
_LONG_RUN = 16384  # by threads, after shorter ones: a single slow moment may have begun them
_CHUNK_SECONDS = 0.2  # that an interrupt waits for, at most
_MOST_FOR_BYTES = 8  # threads: more do not read, write or copy faster
_MOST_BEGUN = 1024  # that are done, or under way, and not yet taken


Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Sequence[Item]], list[Result]]
"""Looks at some items and returns what it has to say; the results keep the items' order."""

Done = Generator[tuple[int, list[Result]], None, None]
"""How many more items were looked at, and the results; in the items' order."""


def over_threads(
    work: Work[Item, Result],
    items: Sequence[Item],
    threads: int | None = None,
    *,
    chunk: int = 64,
) -> Done[Result]:
    """Yield the results of all items, chunk by chunk; closing it joins the threads."""
    start, n_run = 0, _LONG_RUN if threads else _SHORT_RUN
    while start < len(items):  # how is decided anew for each run
        go_on()
        seconds, is_apart = 0.0, threads != 1 or chunk == 1
        if threads is None:
            times, results = [], []
            for item in items[start : start + _SAMPLE]:
                begin, computed = time.perf_counter(), time.thread_time()
                results += work((item,))
                seconds = time.perf_counter() - begin
                times.append((seconds - (time.thread_time() - computed), seconds))
            yield len(times), results
            start += len(times)
            waited, seconds = sorted(times)[len(times) // 2]
            is_apart = waited > SLOW_SECONDS
        n_run = min(2 * n_run, _LONG_RUN) if is_apart else _SHORT_RUN
        run = items[start : start + n_run]
        start += len(run)
        if is_apart:
            n_threads = threads or max_threads()
            # Each thread takes at once what keeps it for a moment only.
            fair = -(-len(run) // (2 * n_threads))
            brief = int(_CHUNK_SECONDS / seconds) if seconds else chunk
            chunks = _chunks(run, max(1, min(chunk, fair, brief)))
            done = in_threads(work, chunks, n_threads=n_threads, name="shardproof")
            with contextlib.closing(done):
                yield from zip(map(len, chunks), done, strict=True)
        elif run:
            yield len(run), work(run)


def telling(runs: Done[Result], n_items: int) -> Done[Result]:
    """Yield the same, and tell after each run how much is done."""
    n_done = 0
    with contextlib.closing(runs):
        for n_more, results in runs:
            yield n_more, results
            n_done += n_more
            tell_done(n_done, n_items)


def collected(
    work: Work[Item, Result],
    items: Sequence[Item],
    threads: int | None = None,
    *,
    chunk: int = 64,
    is_told: bool = False,
) -> list[Result]:
    """Return the results of all items by threads; tell after each chunk how many are done."""
    runs = over_threads(work, items, threads, chunk=chunk)
    with contextlib.closing(telling(runs, len(items)) if is_told else runs) as runs:
        return [found for _, some in runs for found in some]


def in_threads(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    n_threads: int,
    name: str,
    n_begun: int = _MOST_BEGUN,
    stop: Stop | None = None,
) -> Generator[Result, None, None]:
    """Yield what the work returns for each item, in the items' order, or raise what it raised."""
    # At most ``n_begun`` are not taken yet; ``stop`` is set where that ends before they are done.
    if n_threads < 2 or is_main():  # whose interrupts the locks of a pool don't stand
        for item in items:
            go_on()
            yield work(item)
        return
    own = Stop()
    known = own, current.calls, current.flags, mounted.directories
    executor = ThreadPoolExecutor(n_threads, name, _begin, known)
    begun: collections.deque[Future[Result]] = collections.deque()
    try:
        for item in items:
            begun.append(executor.submit(work, item))
            if len(begun) >= n_begun:
                yield _first_of(begun)
        while begun:
            yield _first_of(begun)
    except BaseException:
        if stop is not None:
            stop.set()
        raise
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        own.set()
        executor.shutdown()


def _first_of(begun: "collections.deque[Future[Result]]") -> Result:
    """Return the result of what was begun first, once it is there; raise what it raised."""
    go_on()
    while not begun[0].done():
        wait([begun[0]], TICK)
        go_on()
    return begun.popleft().result()


def _done(work: Callable[..., Result], *arguments: Any) -> "Future[Result]":
    future: Future[Result] = Future()
    future.set_result(work(*arguments))
    return future


class Behind:
    """Threads that do small pieces of work behind the one that begins them, in any order."""

    def __init__(self, name: str) -> None:
        n_threads = threads_for_bytes()
        self._executor = None if is_main() else ThreadPoolExecutor(n_threads, name)
        self._begun: collections.deque[Future[Any]] = collections.deque()
        self._most = n_threads + 2

    def submit(self, work: Callable[..., Result], *arguments: Any) -> "Future[Result]":
        """Begin some work; wait before, or raise what other work raised."""
        if self._executor is None:
            return _done(work, *arguments)
        while len(self._begun) >= self._most:
            _first_of(self._begun)
        try:
            future = self._executor.submit(work, *arguments)
        except RuntimeError:  # the interpreter ends, and begins no thread any more
            return _done(work, *arguments)
        self._begun.append(future)
        return future

    def finish(self) -> None:
        """Wait until nothing is unfinished, or raise what some work raised."""
        while self._begun:
            _first_of(self._begun)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        try:
            if error is None:
                self.finish()
        finally:
            if self._executor is not None:
                self._executor.shutdown(cancel_futures=True)


def _begin(
    stop: Stop, calls: Calls | None, flags: int, directories: tuple[RemoteDirectory, ...]
) -> None:
    current.stop, current.calls, current.flags = stop, calls, flags
    mounted.directories = directories


def _chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def max_threads() -> int:
    """Return `MAX_THREADS`, or fewer where the process may not have that many files open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_THREADS * 4 if soft == resource.RLIM_INFINITY else soft
    return max(1, min(MAX_THREADS, limit // 4))


def available_cpus() -> int:
    """Return how many processors this process may use, as far as the system tells."""
    affinity = getattr(os, "sched_getaffinity", None)
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def threads_for_bytes() -> int:
    """Return how many threads read, write or copy the bytes of one file: one for each processor."""
    return min(available_cpus(), _MOST_FOR_BYTES)


def threads_each(n_at_once: int) -> int:
    """Return how many threads each of so many tasks may use, to use each processor once."""
    return max(1, available_cpus() // max(1, n_at_once))
