"""Work that no interrupt reaches, and that stops soon after one.

Python raises KeyboardInterrupt between any two steps of the main thread: between opening a file and
noting its descriptor, or in the midst of clearing up. So what opens, locks or writes is done in
other threads. The main thread only waits for them, in one place; an interrupt of that wait stops
the work, and goes on to the caller when the work has ended and cleared up by itself.
"""

import atexit
import collections
import contextlib
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from shardproof._base import threads
from shardproof._base.threads import TICK, Mailbox, Stop, Thread, is_collecting
from shardproof.errors import FetchError, SourceError

__all__ = [
    "Cancelled",
    "Closeable",
    "Deadline",
    "Interrupts",
    "Settled",
    "apart",
    "close_at_exit",
    "current",
    "go_on",
    "interrupts",
    "is_collecting",
    "later",
    "settle",
    "stoppable",
    "telling_of_stops",
    "to_waiter",
]

Result = TypeVar("Result")
P = ParamSpec("P")


class Cancelled(BaseException):
    """The work is wanted no more; this error goes no further than to the code that stopped it."""


class Interrupts:
    """How many interrupts the command has counted; the library itself counts none.

    Attributes:
        n: How many came.
        is_awaited: Whether the first is not to be raised, since the code that waits looks at ``n``.
    """

    def __init__(self) -> None:
        self.n = 0
        self.is_awaited = False

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Have the first interrupt counted, and not raised, until the context ends."""
        self.is_awaited = True
        try:
            yield
        finally:
            self.is_awaited = False


interrupts = Interrupts()
"""The count of interrupts, which the signal handlers of the command keep."""


class _Current(threading.local):
    """What is known of the work that a thread is at."""

    stop: threading.Event | None = None
    waiter: "_Waiter | None" = None


current = _Current()
"""What is known of the work that this thread is at."""


def go_on() -> None:
    """Return, unless the work that this thread is at was stopped; costs a tenth of a µs."""
    if current.stop is not None and current.stop.is_set():
        raise Cancelled


@contextlib.contextmanager
def telling_of_stops(path: str, url: str = "") -> Iterator[None]:
    """Raise a FetchError for work that was cancelled, but not for an interrupt."""
    try:
        yield
    except Cancelled as error:
        go_on()
        raise FetchError("it was stopped", url=url, path=path) from error


class Deadline:
    """The time by which a piece of work is to be done, unless it is cancelled before.

    Args:
        seconds: How many it has; None for no end.
        stop: Set from another thread, it cancels the work.
    """

    def __init__(self, seconds: float | None, stop: threading.Event) -> None:
        self.began = time.monotonic()
        self.end = None if seconds is None else self.began + seconds
        self.stop = stop

    def spent(self) -> float:
        """Return how many seconds have passed since it began."""
        return time.monotonic() - self.began

    def left(self, at_most: float) -> float:
        """Return how many seconds are left, up to a bound; 0 when the time is up."""
        if self.end is None:
            return at_most
        return max(0.0, min(at_most, self.end - time.monotonic()))

    def raise_if_stopped(self) -> None:
        """Return if the work is still wanted and there is time left."""
        go_on()
        if self.stop.is_set():
            raise Cancelled
        if not self.left(1.0):
            raise SourceError(f"not done after {self.spent():.3g}s", kind="late")

    def within(self, seconds: float) -> "Deadline":
        """Return the deadline of a part of the work, which has so many seconds at most."""
        return Deadline(self.left(seconds), self.stop)


class Settled(NamedTuple, Generic[Result]):
    """What became of some work: its result, or its error."""

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


def settle(work: Callable[[], Result]) -> Settled[Result]:
    """Do some work, and return what became of it."""
    try:
        return Settled(work(), None)
    except BaseException as error:
        return Settled(None, error)


def apart(work: Callable[[Stop], Result]) -> Result:
    """Return what ``work`` returns, done in a thread of its own if this is the main one.

    Where no thread can be had, as when the interpreter ends, it is done in this one.

    An interrupt stops it, and is raised once it has ended by itself. A second one does not
    change that, unless the command listens to signals: then it is raised at once, and so is a
    third one anywhere.

    Args:
        work: Takes the event that stops it; `go_on`, which it may call in between, looks at that.
    """
    if not threads.is_main():
        return _in_this_thread(work)
    waiter = _Waiter()
    outcome: list[Settled[Result]] = []

    def run(stop: Stop) -> None:
        current.stop, current.waiter = stop, waiter
        outcome.append(settle(lambda: work(stop)))
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
    before = current.stop
    if isinstance(before, Stop):
        return work(before)
    stop = Stop()
    return stoppable(lambda: work(stop), stop)


def stoppable(work: Callable[[], Result], stop: threading.Event) -> Result:
    """Return what the work returns, done in this thread; `go_on` ends it once ``stop`` is set."""
    before = current.stop
    current.stop = stop
    try:
        return work()
    finally:
        current.stop = before


def _end(thread: Thread) -> None:
    if interrupts.n <= 1:  # after a second one, nothing is awaited
        thread.end()


_left: collections.deque[Callable[[], object]] = collections.deque()
_at_it: set[Thread] = set()


def later(work: Callable[[], object]) -> None:
    """Do some work in a thread of its own, without a wait for it; this takes no lock.

    What the collector of garbage finds is closed in this way: see `shardproof._base.threads`. Where
    no thread can be had, the next one does it, too, or the interpreter as it ends.
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


@atexit.register
def _finish_left() -> None:
    for thread in tuple(_at_it):
        thread.end()
    _do_left(None)


# A forked process forgets what is left: the threads of its parent do it.
os.register_at_fork(after_in_child=_left.clear)
os.register_at_fork(after_in_child=_at_it.clear)


class Closeable(Protocol):
    """Something with threads or descriptors of its own, such as a generator."""

    def close(self) -> None:
        """Give them back; do nothing if that was done before."""
        ...


_open: weakref.WeakSet[Closeable] = weakref.WeakSet()


def close_at_exit(one: Closeable) -> None:
    """Close an object when the interpreter ends, if it is there then."""
    _open.add(one)


# While closing still works: later, the modules that it needs have lost their names, and daemon
# threads stand still, so that a wait for one never ends. What is registered last is called first.
@atexit.register
def _close_all() -> None:
    for one in list(_open):
        with contextlib.suppress(ValueError):  # a daemon thread is in the midst of it
            one.close()


class _Waiter:
    """A thread that waits for work, and makes the calls that the work wants made there."""

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
        """Have the thread that waits make a call, and wait until it is made."""
        answer: Mailbox[object] = Mailbox()
        self.calls.put(lambda: answer.put(call()))
        while True:
            go_on()
            with contextlib.suppress(queue.Empty):
                answer.get(TICK)
                return


def to_waiter(call: Callable[P, object] | None) -> Callable[P, None] | None:
    """Return a callable for work that is `apart`: it calls in the thread that waits for the work.

    Should the call raise an error, the work is stopped, and the error goes to the caller.

    Args:
        call: What to call; None for nothing.
    """
    waiter = current.waiter
    if call is None:
        return None

    def ask(*args: P.args, **keywords: P.kwargs) -> None:
        if waiter is None:
            call(*args, **keywords)
        else:
            waiter.ask(lambda: call(*args, **keywords))

    return ask
