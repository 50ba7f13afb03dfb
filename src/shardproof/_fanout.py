"""Do many small looks: one after the other where each is fast, in threads where it must wait.

A look at a file takes microseconds on a warm local disk, where threads only fight for the
interpreter's lock, and a millisecond on a busy network file system, where 64 of them wait together.
Nobody knows beforehand which it is, and it changes half-way when the cached part ends: so a few
looks are timed every now and then, and the median decides about the next run.
"""

import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import TypeVar

__all__ = ["available_cpus", "max_threads", "over_executor", "over_threads"]

MAX_THREADS = 64
"""Past this, a metadata server gets no faster and its other users notice."""

SLOW_SECONDS = 100e-6
"""Median time of a look from which on threads are faster."""

_SAMPLE = 8
_THREADED_CHUNK = 16
_SEQUENTIAL_RUN = 1024
_THREADED_RUN = 8192
_EXECUTOR_CHUNK = 256

Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Sequence[Item]], list[Result]]
"""Looks at some items and returns what it has to say; the results keep the items' order."""


def over_threads(
    work: Work[Item, Result], items: Sequence[Item], threads: int | None = None
) -> Iterator[tuple[int, list[Result]]]:
    """Yield how many items were done and their results, run by run, in order.

    Args:
        work: What to do; called from several threads at once.
        items: All items.
        threads: How many threads; None to decide by the time that looks take.
    """
    pool = _Pool(threads or max_threads())
    try:
        start = 0
        while start < len(items):
            run = _run(work, items, start, threads, pool)
            start += run[0]
            yield run
    finally:
        pool.close()


def _run(
    work: Work[Item, Result],
    items: Sequence[Item],
    start: int,
    threads: int | None,
    pool: "_Pool",
) -> tuple[int, list[Result]]:
    results: list[Result] = []
    sample = items[start : start + _SAMPLE] if threads is None else ()
    is_slow = _median_seconds(work, sample, results) > SLOW_SECONDS if sample else threads != 1
    rest = start + len(sample)
    run = items[rest : rest + (_THREADED_RUN if is_slow else _SEQUENTIAL_RUN)]
    results += pool.run(work, run) if is_slow else work(run)
    return len(sample) + len(run), results


def _median_seconds(
    work: Work[Item, Result], sample: Sequence[Item], results: list[Result]
) -> float:
    seconds = []
    for item in sample:
        begin = time.perf_counter()
        results += work((item,))
        seconds.append(time.perf_counter() - begin)
    return sorted(seconds)[len(seconds) // 2]


class _Pool:
    """Threads that start with the first run and are joined by `close`, come what may."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._executor: Executor | None = None

    def run(self, work: Work[Item, Result], items: Sequence[Item]) -> list[Result]:
        if self._executor is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - costs 10 ms

            self._executor = ThreadPoolExecutor(self._threads, "shardproof")
        size = max(1, min(_THREADED_CHUNK, len(items) // (4 * self._threads)))
        return [result for some in self._executor.map(work, _cut(items, size)) for result in some]

    def close(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)


def over_executor(
    work: Work[Item, Result], items: Sequence[Item], executor: Executor
) -> Iterator[tuple[int, list[Result]]]:
    """Yield the same as `over_threads`, from a given `concurrent.futures.Executor`.

    ``work`` and its results must be picklable, since the executor may use other processes or hosts.
    """
    chunks = _cut(items, _EXECUTOR_CHUNK)
    yield from zip(map(len, chunks), executor.map(work, chunks), strict=True)


def _cut(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def max_threads() -> int:
    """At most `MAX_THREADS`, fewer where the process may not have that many files open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_THREADS * 4 if soft == resource.RLIM_INFINITY else soft
    return max(1, min(MAX_THREADS, limit // 4))


def available_cpus() -> int:
    """How many processors this process may use: sched_getaffinity(2)."""
    return len(os.sched_getaffinity(0))
