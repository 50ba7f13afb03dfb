"""A second thread for work that is over before a thread would be started for it."""

import collections
import contextlib
import functools
import os
import queue
from collections.abc import Callable

from shardproof._base.threads import TICK, Mailbox, Stop, Threads
from shardproof._base.work import Settled, settle

_LOOK_AROUND = 1.0
"""Seconds after which an idle helper looks whether its owner is gone."""


class _Job:
    """Some work, until a thread has taken it; and what became of it there."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = collections.deque([work])
        self.done: Mailbox[Settled[None]] = Mailbox()

    def take(self) -> Callable[[], None] | None:
        """Return the work, the first time only."""
        with contextlib.suppress(IndexError):
            return self._work.popleft()
        return None


class Helper:
    """Takes part in work that other threads do, from the first on until it is ended.

    The owner ends it; should that be cut short, its thread ends by itself soon after the helper is
    no longer referenced. Where the system gives no more threads, nobody helps.
    """

    def __init__(self, name: str) -> None:
        self._todo: Mailbox[_Job | None] = Mailbox()
        self._threads = Threads(functools.partial(_serve, self._todo), name)
        self._owner = self._threads.stop.when_gone(self)
        self._begins = collections.deque([self._threads.begin])  # called once, by whoever takes it
        self._pid = os.getpid()

    def share(self, work: Callable[[], None]) -> None:
        """Do some work here, and in the helper at the same time; return when neither is at it.

        What the work raises here, as an interrupt, is raised at once: the helper may be at it yet.
        It does what there is piece by piece, alone where the helper is busy, and never waits.
        """
        with contextlib.suppress(IndexError, RuntimeError):
            self._begins.popleft()()
        job = _Job(work)
        self._todo.put(job)
        try:
            work()
        finally:
            is_free = job.take() is not None
        if not is_free:
            self._wait(job)

    def _wait(self, job: _Job) -> None:
        # In a forked process there is no helper.
        while os.getpid() == self._pid and not self._threads.have_ended:
            with contextlib.suppress(queue.Empty):
                job.done.get(TICK).get()
                return

    def end(self) -> None:
        """End the thread, and wait until it has ended; work that is under way is done by others."""
        self._threads.stop.set()
        self._todo.put(None)
        self._threads.end()


def _serve(todo: "Mailbox[_Job | None]", stop: Stop) -> None:
    while not stop.is_set():
        job = None
        with contextlib.suppress(queue.Empty):
            job = todo.get(_LOOK_AROUND)
        work = job.take() if job is not None else None
        if job is not None and work is not None:
            job.done.put(settle(work))
        del job, work  # while it waits for the next one
