"""Do many small looks: one after the other where each is fast, in threads where it must wait.

A look at a file takes microseconds on a warm local disk, where threads only fight for the
interpreter's lock, and a millisecond on a busy network file system, where 64 of them wait together.
Nobody knows beforehand which it is, and it changes half-way when the cached part ends: so a few
looks are timed every now and then, and the median decides about the next run.
"""

import os
import resource
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from shardproof._base.crew import Crew
from shardproof._base.work import go_on

__all__ = ["available_cpus", "max_threads", "over_executor", "over_threads"]

MAX_THREADS = 64
"""At a millisecond a call, 96 and 128 were no faster; and a metadata server has other users."""

SLOW_SECONDS = 100e-6
"""Median time of a look from which on threads are faster."""

_SAMPLE = 3
_SEQUENTIAL_RUN = 512
_THREADED_RUN = 16384
_CHUNK_SECONDS = 0.2

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
    """Yield the results of all items, chunk by chunk; closing it joins the threads.

    Args:
        work: What to do; called from several threads at once.
        items: All items.
        threads: How many threads; None to decide by the time that looks take.
        chunk: Most items that a thread takes at once; an interrupt waits until it did them.
    """
    pool = _Pool(work, threads or max_threads(), chunk)
    try:
        start = 0
        while start < len(items):
            go_on()
            for n_items, results in _run(work, items, start, threads, pool):
                start += n_items
                yield n_items, results
    finally:
        try:
            pool.end()
        finally:
            pool.end()  # what an interrupt has cut short


def _run(
    work: Work[Item, Result],
    items: Sequence[Item],
    start: int,
    threads: int | None,
    pool: "_Pool[Item, Result]",
) -> Done[Result]:
    """Look at the next items; how is decided anew for each run."""
    seconds, in_threads = 0.0, threads != 1
    if threads is None:
        sample = items[start : start + _SAMPLE]
        times, results = [], []
        for item in sample:
            begin = time.perf_counter()
            results += work((item,))
            times.append(time.perf_counter() - begin)
        yield len(sample), results
        start += len(sample)
        seconds = sorted(times)[len(times) // 2]
        in_threads = seconds > SLOW_SECONDS
    run = items[start : start + (_THREADED_RUN if in_threads else _SEQUENTIAL_RUN)]
    if in_threads:
        yield from pool.run(run, seconds)
    elif run:
        yield len(run), work(run)


class _Pool(Generic[Item, Result]):
    """Threads that begin with the first run, and look at chunks of items."""

    def __init__(self, work: Work[Item, Result], threads: int, chunk: int) -> None:
        self._threads = threads
        self._chunk = chunk
        self._crew = Crew(work, threads, "shardproof")
        self.end = self._crew.end

    def run(self, items: Sequence[Item], seconds: float) -> Done[Result]:
        """Look in threads, each of which takes at once what keeps it for a moment only."""
        fair = -(-len(items) // (2 * self._threads))
        brief = int(_CHUNK_SECONDS / seconds) if seconds else self._chunk
        chunks = _chunks(items, max(1, min(self._chunk, fair, brief)))
        yield from zip(map(len, chunks), self._crew.results(chunks), strict=True)


def over_executor(
    work: Work[Item, Result], items: Sequence[Item], executor: Executor, *, chunk: int = 256
) -> Done[Result]:
    """Yield the same as `over_threads`, from a given `concurrent.futures.Executor`.

    ``work`` and its results must be picklable, since the executor may use other processes or hosts.
    """
    chunks = _chunks(items, chunk)
    yield from zip(map(len, chunks), executor.map(work, chunks), strict=True)


def _chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def max_threads() -> int:
    """Return `MAX_THREADS`, or fewer where the process may not have that many files open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_THREADS * 4 if soft == resource.RLIM_INFINITY else soft
    return max(1, min(MAX_THREADS, limit // 4))


def available_cpus() -> int:
    """Return how many processors this process may use: sched_getaffinity(2)."""
    return len(os.sched_getaffinity(0))
