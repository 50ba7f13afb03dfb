"""Work that no interrupt reaches, and that stops soon after one.

Python raises KeyboardInterrupt between any two steps of the main thread: between opening a file and
noting its descriptor, or in the midst of clearing up. So what opens, locks or writes is done in
other threads. The main thread only waits for them, in one place; an interrupt of that wait tells
the work to stop, and goes on to the caller when the work has ended and cleared up by itself.
"""

import atexit
import collections
import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Generic, NamedTuple, ParamSpec, TypeVar

from shardproof._base import threads
from shardproof._base.mailbox import Mailbox
from shardproof._base.threads import TICK, Stop, Thread, Threads, is_collecting

__all__ = [
    "Cancelled",
    "Crew",
    "Interrupts",
    "apart",
    "go_on",
    "in_threads",
    "interrupts",
    "is_collecting",
    "later",
    "stoppable",
    "to_waiter",
]

Item = TypeVar("Item")
Result = TypeVar("Result")
P = ParamSpec("P")


class Cancelled(BaseException):
    """The work is wanted no more. Nobody but who told it to stop gets to see this."""


class Interrupts:
    """Those of the main thread that somebody has counted; in the library, nobody counts them.

    Attributes:
        n: How many came.
        is_awaited: Whether the first is not to be raised: whoever waits looks at ``n``.
    """

    def __init__(self) -> None:
        self.n = 0
        self.is_awaited = False

    @property
    def is_impatient(self) -> bool:
        """Whether somebody has interrupted more than once, and will not wait."""
        return self.n > 1

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Do not raise the first one meanwhile."""
        self.is_awaited = True
        try:
            yield
        finally:
            self.is_awaited = False


interrupts = Interrupts()
"""The command counts what its handlers of signals are told here."""


class _Here(threading.local):
    """What is known of the work that a thread is at."""

    stop: threading.Event | None = None
    waiter: "_Waiter | None" = None


_here = _Here()


def go_on() -> None:
    """Return, unless the work that this thread is at was told to stop; costs a tenth of a µs.

    Raises:
        Cancelled: It was.
    """
    if _here.stop is not None and _here.stop.is_set():
        raise Cancelled


class _Done(NamedTuple, Generic[Result]):
    """What became of some work."""

    result: Result | None
    error: BaseException | None

    def get(self) -> Result:
        """Return what it returned; raise what it raised."""
        error = self.error
        if error is not None:
            try:
                raise error
            finally:
                del error, self  # or it would hold itself, and all that its frames hold
        return self.result  # type: ignore[return-value]


def _done(work: Callable[[], Result]) -> _Done[Result]:
    try:
        return _Done(work(), None)
    except BaseException as error:
        return _Done(None, error)


def apart(work: Callable[[Stop], Result]) -> Result:
    """Return what ``work`` returns, done in a thread of its own if this is the main one.

    Where no thread can be had, as when the interpreter ends, it is done in this one.

    An interrupt tells it to stop, and is raised once it has ended by itself. A second one does not
    change that, unless the command listens to signals: then it is raised at once, and so is a
    third one anywhere.

    Args:
        work: Takes what tells it to stop; so does `go_on`, which it may call in between.
    """
    if not threads.is_main():
        return _in_this_thread(work)
    waiter = _Waiter()
    outcome: list[_Done[Result]] = []

    def run(stop: Stop) -> None:
        _here.stop, _here.waiter = stop, waiter
        outcome.append(_done(lambda: work(stop)))
        waiter.calls.put(None)

    thread = Thread(run)
    try:
        with interrupts.awaited():
            has_begun = thread.begin()
            while has_begun and not outcome:
                waiter.listen()
            thread.end()
    except BaseException:
        try:
            _end(thread)
        finally:
            _end(thread)  # what an interrupt has cut short
        raise
    if interrupts.n:
        raise KeyboardInterrupt
    return outcome.pop().get() if has_begun else _in_this_thread(work)


def _in_this_thread(work: Callable[[Stop], Result]) -> Result:
    before = _here.stop
    if isinstance(before, Stop):
        return work(before)
    stop = Stop()
    return stoppable(lambda: work(stop), stop)


def stoppable(work: Callable[[], Result], stop: threading.Event) -> Result:
    """Return what the work returns, done in this thread; `go_on` ends it once ``stop`` is set."""
    before = _here.stop
    _here.stop = stop
    try:
        return work()
    finally:
        _here.stop = before


def _end(thread: Thread) -> None:
    if not interrupts.is_impatient:
        thread.end()


_left: collections.deque[Callable[[], object]] = collections.deque()
_at_it: set[Thread] = set()


def later(work: Callable[[], object]) -> None:
    """Let something be done in a thread of its own, which nobody waits for; it takes no lock.

    So is closed what the collector of garbage finds: see `shardproof._base.threads`. Where no
    thread can be had, the next one does it, too, or the interpreter as it ends.
    """
    for thread in tuple(_at_it):
        if thread.has_ended:
            _at_it.discard(thread)
    _left.append(work)
    thread = Thread(_do_left)
    thread.begin()
    _at_it.add(thread)


def _do_left(_: object) -> None:
    while True:
        try:
            work = _left.popleft()
        except IndexError:
            return
        work()


def _finish_left() -> None:
    for thread in tuple(_at_it):
        thread.end()
    _do_left(None)


def _forget_left() -> None:
    """What a forked process's parent has left to threads is done by those."""
    _left.clear()
    _at_it.clear()


atexit.register(_finish_left)
os.register_at_fork(after_in_child=_forget_left)


class _Waiter:
    """Who waits for work, and does for it what is to be done in the caller's thread."""

    def __init__(self) -> None:
        self.calls: Mailbox[Callable[[], object] | None] = Mailbox()

    def listen(self) -> None:
        """Do what the work asks for; raise an interrupt that has come."""
        if interrupts.n:
            raise KeyboardInterrupt
        call = None
        with contextlib.suppress(queue.Empty):
            call = self.calls.get(TICK)
        if call is not None:
            call()

    def ask(self, call: Callable[[], object]) -> None:
        """Let something be done by who waits, and wait for that."""
        answer: Mailbox[object] = Mailbox()
        self.calls.put(lambda: answer.put(call()))
        while True:
            go_on()
            with contextlib.suppress(queue.Empty):
                answer.get(TICK)
                return


def to_waiter(call: Callable[P, object] | None) -> Callable[P, None] | None:
    """Return a callable for work that is `apart`: it calls in the thread that waits for the work.

    Should the call raise an error, the work is told to stop, and the error goes to the caller.

    Args:
        call: What to call; None for nothing.
    """
    waiter = _here.waiter
    if call is None:
        return None

    def ask(*args: P.args, **keywords: P.kwargs) -> None:
        if waiter is None:
            call(*args, **keywords)
        else:
            waiter.ask(lambda: call(*args, **keywords))

    return ask


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
    collector of garbage does, they are told, and end soon. Work that has begun is ended by `go_on`,
    or by itself; what is not begun is not done.

    Args:
        work: Called in several threads at once.
        items: Advanced by the caller's thread.
        n_threads: How many threads, at most.
        name: What their names begin with.
        depth: How many items are begun and not yet taken, at most; None for all.
        stop: Set when one of them fails, or no more are wanted, for work that asks it.
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

    Whoever has one ends it twice, the second time in a ``finally`` of the first: an interrupt that
    cuts the first short leaves nothing then. Should both be cut short, the threads end by
    themselves once nobody has it any more.

    Args:
        work: Called in several threads at once; it does not hold the crew.
        n_threads: How many threads, at most; no more than the first items need.
        name: What their names begin with.
    """

    def __init__(self, work: Callable[[Item], Result], n_threads: int, name: str) -> None:
        self._n_threads = n_threads
        self._jobs = _Jobs(work)
        self._early: dict[int, _Done[Result]] = {}
        self._n_begun = self._n_taken = 0
        self._threads = Threads(self._jobs.run, name)
        self._jobs.owner = self._threads.stop.when_gone(self)
        self._has_begun = False

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
        if not self._has_begun:
            self._has_begun = True
            self._threads.begin(min(self._n_threads, self._n_begun))
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
        """Tell the threads to stop, and wait until they have ended."""
        self._threads.stop.set()
        self._jobs.todo.put(None)
        self._threads.end()


class _Jobs(Generic[Item, Result]):
    """What the threads of a crew hold, which is not the crew."""

    def __init__(self, work: Callable[[Item], Result]) -> None:
        self.todo: Mailbox[tuple[int, Item] | None] = Mailbox()
        self.results: Mailbox[tuple[int, _Done[Result]]] = Mailbox()
        self.owner: weakref.ref[object] | None = None
        self._work = work
        self._waiter = _here.waiter

    def run(self, stop: Stop) -> None:
        """Do what is to be done, until there is no more or it is told to stop."""
        _here.stop, _here.waiter = stop, self._waiter
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
        self.results.put((number, _done(lambda: self._work(item))))
