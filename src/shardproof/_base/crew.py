"""Threads that do one kind of work for many items, until their owner ends them."""

import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from typing import Generic, TypeVar

from shardproof._base.threads import TICK, Mailbox, Stop, Threads
from shardproof._base.work import Settled, current, go_on, settle

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    n_threads: int,
    name: str,
    depth: int | None = None,
    stop: threading.Event | None = None,
) -> Generator[Result, None, None]:
    """Yield what the work returns for each item, in the items' order, or raise what it raised.

    Threads exist only while the generator does: closing it, or dropping it, ends them; where the
    collector of garbage does, they end soon after. Work that has begun is ended by `go_on`,
    or by itself; what is not begun is not done. At most ``depth`` items are begun and not yet
    taken. ``stop`` is set when one fails, or no more are wanted, for work that asks it.
    """
    crew = Crew(work, n_threads, name)
    try:
        yield from crew.results(items, depth)
    except BaseException:
        if stop is not None:
            stop.set()
        raise
    finally:
        try:
            crew.end()
        finally:
            crew.end()  # what an interrupt has cut short


class Crew(Generic[Item, Result]):
    """Threads that do one kind of work, from the first items on until they are ended.

    The owner ends it twice, the second time in a ``finally`` of the first: an interrupt that cuts
    the first short leaves nothing then. Should both be cut short, the threads end by themselves
    once the crew is no longer referenced.

    Arguments are those of `in_threads`; no more threads begin than the first items need. The work
    does not hold the crew.
    """

    def __init__(self, work: Callable[[Item], Result], n_threads: int, name: str) -> None:
        self._n_threads = n_threads
        self._jobs = _Jobs(work)
        self._early: dict[int, Settled[Result]] = {}
        self._n_begun = self._n_taken = 0
        self._threads = Threads(self._jobs.run, name)
        self._jobs.owner = self._threads.stop.when_gone(self)
        self._pid: int | None = None  # once they have begun

    def results(
        self, items: Iterable[Item], depth: int | None = None
    ) -> Generator[Result, None, None]:
        """Yield what the work returns for each item, in their order; arguments as `in_threads`."""
        for item in items:
            self._jobs.todo.put((self._n_begun, item))
            self._n_begun += 1
            if self._n_begun - self._n_taken == depth:
                yield self._take()
        while self._n_taken < self._n_begun:
            yield self._take()

    def _take(self) -> Result:
        if self._pid is None:
            self._pid = os.getpid()
            self._threads.begin(min(self._n_threads, self._n_begun))
        if os.getpid() != self._pid:  # the threads are the parent's alone
            raise RuntimeError("an iteration does not survive a fork: make one in each process")
        number = self._n_taken
        self._n_taken += 1
        while number not in self._early:
            go_on()
            with contextlib.suppress(queue.Empty):
                found, done = self._jobs.results.get(TICK)
                self._early[found] = done
                del done
        return self._early.pop(number).get()

    def end(self) -> None:
        """Stop the threads, and wait until they have ended."""
        self._threads.stop.set()
        self._jobs.todo.put(None)
        self._threads.end()


class _Jobs(Generic[Item, Result]):
    """What the threads of a crew hold: not the crew itself, which then could never be gone."""

    def __init__(self, work: Callable[[Item], Result]) -> None:
        self.todo: Mailbox[tuple[int, Item] | None] = Mailbox()
        self.results: Mailbox[tuple[int, Settled[Result]]] = Mailbox()
        self.owner: weakref.ref[object] | None = None
        self._work = work
        self._waiter = current.waiter

    def run(self, stop: Stop) -> None:
        """Do what is to be done, until there is no more or ``stop`` is set."""
        current.stop, current.waiter = stop, self._waiter
        while not stop.is_set():
            try:
                task = self.todo.get(TICK)
            except queue.Empty:
                continue
            if task is None:
                self.todo.put(None)  # for the next thread
                return
            self._do(*task)
            del task  # while it waits for the next one

    def _do(self, number: int, item: Item) -> None:
        self.results.put((number, settle(lambda: self._work(item))))
