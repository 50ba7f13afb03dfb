"""Do things ahead of time in threads, a bounded number of them, in order."""

import collections
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["read_ahead"]

T = TypeVar("T")


def read_ahead(
    tasks: Iterable[Callable[[], T]], *, n_threads: int, depth: int
) -> Generator[T, None, None]:
    """Yield what each task returns, in their order.

    Threads exist only while the generator does: closing it, or dropping it, joins them.

    Args:
        tasks: Called in threads; the iterable itself is advanced by the caller's thread.
        n_threads: How many threads.
        depth: How many tasks are begun and not yet taken, at most.

    Raises:
        Exception: What a task raised, at its turn.
    """
    executor = ThreadPoolExecutor(n_threads, thread_name_prefix="shardproof-reader")
    begun: collections.deque[Future[T]] = collections.deque()
    try:
        for task in tasks:
            begun.append(executor.submit(task))
            if len(begun) >= depth:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        executor.shutdown(wait=True, cancel_futures=True)
