"""Threads under an iteration, or a dataset, that the caller's own thread begins and ends."""

import collections
import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

from shardproof._base.work import Settled, apart, go_on, settle

_TICK = 0.1  # seconds after which a thread looks whether it is over, in case that it was not woken
_PATIENCE = 5.0  # seconds that a wait for the threads lasts at most
_NO_FORK = "an iteration does not survive a fork: make one in each process"

Result = TypeVar("Result")


class Crew:
    """Threads that make the calls of a queue until it is over; the last one calls ``at_end``."""

    # Whoever wants them no more sets ``is_over``, in a statement without a call where a ``finally``
    # begins: there no interrupt comes before it. They end soon after that; `end` waits for it.

    def __init__(self, name: str, at_end: Callable[[], object] = int) -> None:
        self.calls: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self.is_over = False
        self._name, self._at_end = name, at_end
        self._threads: list[threading.Thread] = []
        self._n_running, self._lock = 0, threading.Lock()
        self._pid = os.getpid()

    @property
    def is_of_parent(self) -> bool:
        """Whether its threads are those of a process from which this one was forked."""
        return os.getpid() != self._pid

    @property
    def is_running(self) -> bool:
        """Whether any of them is there."""
        return self._n_running > 0 and not self.is_of_parent

    def begin(self, n_threads: int) -> None:
        """Start so many of them; or fewer, where the system gives no more."""
        apart(lambda _: self._begin(n_threads))

    def _begin(self, n_threads: int) -> None:
        for number in range(n_threads):
            name = f"{self._name}-{number}" if n_threads > 1 else self._name
            # Daemons, so that an interpreter that ends does not wait before it stops them.
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            with self._lock:
                self._n_running += 1
            try:
                thread.start()
            except RuntimeError:
                self._leave()
                if not self._threads:
                    raise
                break
            self._threads.append(thread)

    def _run(self) -> None:
        try:
            while not self.is_over:
                try:
                    call = self.calls.get(timeout=_TICK)
                except queue.Empty:
                    continue
                call()
                del call  # and what it holds, while this waits for the next one
        finally:
            self._leave()

    def _leave(self) -> None:
        with self._lock:
            self._n_running -= 1
            is_last = not self._n_running
        if is_last:
            self._at_end()

    def results(
        self, jobs: Iterable[Callable[[], Result]], n_threads: int, depth: int
    ) -> Generator[Result, None, None]:
        """Yield what each job returns, in order; at most ``depth`` are begun and not yet taken."""
        found: queue.SimpleQueue[tuple[int, Settled[Result]]] = queue.SimpleQueue()
        early: dict[int, Settled[Result]] = {}
        todo, n_begun = iter(jobs), 0

        def put(number: int, job: Callable[[], Result]) -> None:
            self.calls.put(lambda: found.put((number, settle(job))))

        for number in itertools.count():
            for job in itertools.islice(todo, number + depth - n_begun):
                put(n_begun, job)
                n_begun += 1
            if number == n_begun:
                return
            if number == 0:
                self.begin(min(n_threads, n_begun))
            if self.is_of_parent:
                raise RuntimeError(_NO_FORK)
            while number not in early:
                go_on()
                with contextlib.suppress(queue.Empty):
                    early.update([found.get(timeout=_TICK)])
            yield early.pop(number).get()

    def end(self) -> None:
        """End the threads, and wait for that: not for ever, nor for this one itself."""
        # The collector may run in one of them, or in a thread with a lock that they need.
        self.is_over = True
        if self.is_of_parent or threading.current_thread() in self._threads:
            return
        for _ in self._threads:
            self.calls.put(int)  # which wakes one
        end = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))


class Helpers:
    """More threads for work that is over before a thread would be started for it."""

    def __init__(self, name: str, n_threads: int) -> None:
        self._crew, self._n_threads = Crew(name), n_threads
        self._begins = collections.deque([self._crew.begin])  # called once, by whoever takes it

    def share(self, work: Callable[[], None]) -> None:
        """Do some work here, and in each helper at the same time; return when none is at it."""
        # What the work raises here, as an interrupt, is raised at once: helpers may be at it.
        with contextlib.suppress(IndexError, RuntimeError):
            self._begins.popleft()(self._n_threads)
        free = collections.deque([work] * self._n_threads)  # until a helper takes it
        done: queue.SimpleQueue[Settled[None]] = queue.SimpleQueue()

        def help_out() -> None:
            for taken in _popped(free):
                done.put(settle(taken))

        for _ in range(self._n_threads):
            self._crew.calls.put(help_out)
        try:
            work()
        finally:
            n_left = sum(not _popped(free) for _ in range(self._n_threads))
        while n_left and self._crew.is_running:  # in a forked process there is no helper
            with contextlib.suppress(queue.Empty):
                done.get(timeout=_TICK).get()
                n_left -= 1

    def end(self) -> None:
        """End the threads, and wait until they have ended; work under way is done by others."""
        self._crew.end()


def _popped(free: collections.deque[Callable[[], None]]) -> list[Callable[[], None]]:
    """Return what is still free, the first time only."""
    try:
        return [free.pop()]
    except IndexError:
        return []
