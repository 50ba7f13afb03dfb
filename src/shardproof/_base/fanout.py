"""Do many small looks: one after the other where each is fast, in threads where it must wait.

A look at a file takes microseconds on a warm local disk, where threads only fight for the
interpreter's lock, and a millisecond on a busy network file system, where 64 of them wait together.
Which it is can't be known beforehand, and changes half-way when the cached part ends: so a few
looks are timed every now and then, and the median decides about the next run.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, TypeVar

from shardproof._base.crew import Crew
from shardproof._base.work import go_on

__all__ = [
    "Executor",
    "available_cpus",
    "max_threads",
    "over_executor",
    "over_threads",
    "threads_each",
]

MAX_THREADS = 64
"""At a millisecond a call, 96 and 128 were no faster; and a metadata server has other users."""

SLOW_SECONDS = 100e-6
"""Median time that a look waits from which on threads are faster; what it computes counts for
nothing, as only one of them computes at a time."""

_SAMPLE = 3  # an odd number, whose median is not moved by one slow look
_SEQUENTIAL_RUN = 512  # short: if the file system is slow by now, these look one after the other
_THREADED_RUN = 16384
_CHUNK_SECONDS = 0.2  # that an interrupt waits for, at most

if TYPE_CHECKING:
    from concurrent.futures import Executor
else:

    class _Executors(type):
        def __instancecheck__(cls, value: object) -> bool:
            futures = sys.modules.get("concurrent.futures")
            return futures is not None and isinstance(value, futures.Executor)

    class Executor(metaclass=_Executors):
        """A `concurrent.futures.Executor`; whoever has one has imported that, others need not."""


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

    Without a number of threads, the time that looks take decides. An interrupt waits for a chunk.
    """
    n_threads = threads or max_threads()
    crew = Crew(work, n_threads, "shardproof")
    start = 0
    try:
        while start < len(items):  # how is decided anew for each run
            go_on()
            seconds, in_threads = 0.0, threads != 1
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
                in_threads = waited > SLOW_SECONDS
            run = items[start : start + (_THREADED_RUN if in_threads else _SEQUENTIAL_RUN)]
            start += len(run)
            if in_threads:
                # Each thread takes at once what keeps it for a moment only.
                fair = -(-len(run) // (2 * n_threads))
                brief = int(_CHUNK_SECONDS / seconds) if seconds else chunk
                chunks = _chunks(run, max(1, min(chunk, fair, brief)))
                yield from zip(map(len, chunks), crew.results(chunks), strict=True)
            elif run:
                yield len(run), work(run)
    finally:
        try:
            crew.end()
        finally:
            crew.end()  # what an interrupt has cut short


def over_executor(
    work: Work[Item, Result], items: Sequence[Item], executor: Executor, *, chunk: int = 256
) -> Done[Result]:
    """Yield the same from an `Executor`, to whose processes ``work`` and results are pickled."""
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
    """Return how many processors this process may use, as far as the system tells."""
    if sys.platform == "linux":
        usable = len(os.sched_getaffinity(0))
    else:
        usable = os.cpu_count() or 1
    return usable


def threads_each(n_at_once: int) -> int:
    """Return how many threads each of so many tasks may use, to use each processor once."""
    return max(1, available_cpus() // max(1, n_at_once))
