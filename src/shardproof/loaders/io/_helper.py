"""A second thread for work that is over before a thread would be started for it."""

import collections
import contextlib
import queue
from collections.abc import Callable

from shardproof._base.work import TICK, Settled, settle
from shardproof.loaders.io._crew import Crew


class _Job:
    """Some work, until a thread has taken it; and what became of it there."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = collections.deque([work])
        self.done: queue.SimpleQueue[Settled[None]] = queue.SimpleQueue()

    def take(self) -> Callable[[], None] | None:
        """Return the work, the first time only."""
        with contextlib.suppress(IndexError):
            return self._work.popleft()
        return None

    def do(self) -> None:
        """Do the work, if no other thread has taken it."""
        work = self.take()
        if work is not None:
            self.done.put(settle(work))


class Helper:
    """Takes part in work that other threads do, from the first on until it is ended."""

    def __init__(self, name: str) -> None:
        self._crew = Crew(name)
        self._begins = collections.deque([self._crew.begin])  # called once, by whoever takes it

    def share(self, work: Callable[[], None]) -> None:
        """Do some work here, and in the helper at the same time; return when neither is at it."""
        # What the work raises here, as an interrupt, is raised at once: the helper may be at it.
        with contextlib.suppress(IndexError, RuntimeError):
            self._begins.popleft()(1)
        job = _Job(work)
        self._crew.calls.put(job.do)
        try:
            work()
        finally:
            is_free = job.take() is not None
        while not is_free and self._crew.is_running:  # in a forked process there is no helper
            with contextlib.suppress(queue.Empty):
                job.done.get(timeout=TICK).get()
                return

    def end(self) -> None:
        """End the thread, and wait until it has ended; work that is under way is done by others."""
        self._crew.end()
