"""Work that no interrupt reaches, and that stops soon after one.

Python raises KeyboardInterrupt between any two steps of the main thread: between opening a file and
noting its descriptor, in the midst of clearing up, or within a lock that is written in Python
(`threading.Event`, those of `concurrent.futures`), which then stays held for ever. So what opens,
locks or writes is done in other threads, where no interrupt is raised and pools and events are
safe. The main thread only waits for them, in `apart`; an interrupt of that wait stops the work, and
goes on to the caller when the work has ended and cleared up by itself. So it is with an event loop,
which is never blocked: no thread outlives a coroutine's wait, in `LoopThreads`.

The rule for what runs in the main thread: a thread is started, and an event set, only `apart`; what
is given up is told so by one statement without a call, where a ``finally`` begins. There no
interrupt comes before it.
"""

import _thread
import atexit
import contextlib
import functools
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, NamedTuple, ParamSpec, Self, TypeVar

from shardproof._base.addresses import mounted
from shardproof.errors import FetchError, SourceError

TICK = 0.05
"""Seconds after which a wait looks around, in case that it was not woken."""

_PATIENCE = 5.0  # seconds that a wait for what is closed lasts at most

Result = TypeVar("Result")
P = ParamSpec("P")
Stop = threading.Event
Calls = queue.SimpleQueue[Callable[[], object] | None]
Show = Callable[[int, int], object]
"""Takes how much is done, and of how much."""


class Cancelled(BaseException):
    """The work is wanted no more; this error goes no further than to the code that stopped it."""


class _Current(threading.local):
    """What stops the work of a thread, takes calls for its waiter, and shows how much is done."""

    flags = 0  # of open(2), with which it opens files
    stop: Stop | None = None
    calls: Calls | None = None
    show: Show | None = None


current = _Current()
"""What is known of the work that this thread is at."""


def is_main() -> bool:
    """Whether interrupts are raised in this thread."""
    return threading.get_ident() == threading.main_thread().ident


def go_on() -> None:
    """Return, unless the work that this thread is at was stopped; costs a tenth of a µs."""
    if current.stop is not None and current.stop.is_set():
        raise Cancelled


@contextlib.contextmanager
def keeping_atime() -> Iterator[None]:
    """Let reads of this thread leave atime as it is, of files that belong to the user."""
    current.flags = getattr(os, "O_NOATIME", 0)
    try:
        yield
    finally:
        current.flags = 0


@contextlib.contextmanager
def telling_of_stops(path: str, url: str = "") -> Iterator[None]:
    """Raise a FetchError for work that was cancelled, but not for an interrupt."""
    try:
        yield
    except Cancelled as error:
        go_on()
        raise FetchError("it was stopped", url=url, path=path) from error


class Deadline:
    """The time by which a piece of work is to be done, unless ``stop``, or its thread's, is set."""

    def __init__(self, seconds: float | None, stop: threading.Event | None = None) -> None:
        self.began = time.monotonic()
        self.end = None if seconds is None else self.began + seconds
        self.stop = stop or current.stop or Stop()

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


class _WorkThread(Generic[Result]):
    """Work in a thread of the interpreter's own, which costs half as much as one of `threading`."""

    def __init__(self, work: Callable[[Stop], Result], show: Show | None = None) -> None:
        self.settled: list[Settled[Result]] = []
        self.calls = Calls()
        self._work, self._stop, self._show = work, Stop(), show
        self._threads: list[Any] = []
        self._directories = mounted.directories

    def begin(self) -> bool:
        """Start it, without a wait; say whether a thread could be had."""
        if sys.is_finalizing():  # Python 3.11 would make one that never runs
            return False
        # By one call into the interpreter: between two, an interrupt may come.
        with contextlib.suppress(RuntimeError):
            if sys.version_info >= (3, 13):
                self._threads.extend(map(_thread.start_joinable_thread, [self._run]))
            else:
                self._threads.extend(map(_thread.start_new_thread, [self._run], [()]))
        return bool(self._threads)

    def _run(self) -> None:
        sys.settrace(threading.gettrace())  # as each thread of `threading` is
        sys.setprofile(threading.getprofile())
        current.stop, current.calls, current.show = self._stop, self.calls, self._show
        mounted.directories = self._directories
        self.settled.append(settle(lambda: self._work(self._stop)))
        if sys.version_info < (3, 13):  # where it would stay listed if it was asked its name
            threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]
        self.calls.put(None)

    def serve(self, watch: Callable[[], object] = lambda: None) -> None:
        """Make the calls that the work wants made, until it has ended; ``watch`` meanwhile."""
        while True:
            watch()
            try:
                call = self.calls.get(timeout=TICK)
            except queue.Empty:
                continue
            if call is None:
                break
            call()
        self.join()

    def stop(self, *, waits: bool = True) -> None:
        """Stop the work, and wait until it has ended."""
        self._stop.set()
        if waits:
            while self._threads and not self.settled:
                self.wait(TICK)
            self.join()

    def wait(self, seconds: float) -> None:
        """Wait until the work has ended, at most so long; what it wants called is not called."""
        with contextlib.suppress(queue.Empty):
            while self.calls.get(timeout=seconds) is not None:
                pass

    def join(self) -> None:
        """Wait for the thread, whose work has ended."""
        if sys.version_info >= (3, 13):
            for thread in self._threads:
                thread.join()


def apart(work: Callable[[Stop], Result], show: Show | None = None) -> Result:
    """Return what ``work`` returns, done in a thread of its own if this is the main one."""
    # ``show`` is called in this thread, with what the work says by `tell_done`.
    # An interrupt sets the event that the work takes, at which `go_on` looks, and is raised once
    # the work has ended by itself. A second one meanwhile is raised at once.
    task = _WorkThread(work, show)
    try:
        if not is_main() or not task.begin():
            stop = current.stop or Stop()
            return stoppable(lambda: work(stop), stop, show)
        task.serve()  # not a loop here: up to Python 3.12 interrupts may leave one past `except`
    except BaseException:
        task.stop()
        raise
    return task.settled.pop().get()


def watched(
    work: Callable[[], Result], watch: Callable[[], object], *, waits: bool = True
) -> Result:
    """Return what the work returns, done in another thread; ``watch`` is called every moment."""
    # What that raises stops the work, and ends this. Calls that the work wants made are made here.
    # Of others' code, which may never end, ``waits`` is False: it is left behind.
    task = _WorkThread(lambda _: work())
    try:
        if not task.begin():
            return work()
        task.serve(watch)
    except BaseException:
        task.stop(waits=waits)
        raise
    return task.settled.pop().get()


def stoppable(work: Callable[[], Result], stop: Stop, show: Show | None = None) -> Result:
    """Return what the work returns, done in this thread; `go_on` ends it once ``stop`` is set."""
    before = current.stop, current.show
    current.stop, current.show = stop, show
    try:
        return work()
    finally:
        current.stop, current.show = before


class LoopThreads:
    """Runs blocking work for coroutines, each piece in a thread of its own."""

    def __init__(self) -> None:
        self._running: dict[threading.Thread, Stop] = {}

    async def run(self, work: Callable[[Stop], Result], name: str) -> Result:
        """Return what the work returns; raise what it raises."""
        import asyncio  # noqa: PLC0415 - takes long, and whoever awaits this has it

        loop, stop = asyncio.get_running_loop(), Stop()
        self.loop = loop
        has_ended, settled = asyncio.Event(), list[Settled[Result]]()

        def run() -> None:
            settled.append(settle(lambda: work(stop)))
            with contextlib.suppress(RuntimeError):  # the loop is closed: no wait is left
                loop.call_soon_threadsafe(has_ended.set)

        # A daemon: an interpreter that ends does not wait for it before it is told to stop.
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._running[thread] = stop
        try:
            apart(lambda _: thread.start())
            await has_ended.wait()
        except asyncio.CancelledError:
            stop.set()
            while not has_ended.is_set():  # however often this wait is cancelled, too
                with contextlib.suppress(asyncio.CancelledError):
                    await has_ended.wait()
            raise
        finally:
            stop.set()  # where no coroutine awaits it any more
            if has_ended.is_set():
                thread.join()
                del self._running[thread]
        return settled.pop().get()

    def end(self) -> None:
        """Stop all work, and join its threads, but for the one that calls it."""
        running = dict(self._running)
        for stop in running.values():
            stop.set()
        for thread in running:
            if thread is not threading.current_thread():
                thread.join()


def in_thread(method: Callable[P, Result]) -> Callable[P, Coroutine[Any, Any, Result]]:
    """Return a coroutine function that does as a method does, in a thread of its own."""

    @functools.wraps(method)
    async def twin(*args: P.args, **keywords: P.kwargs) -> Result:
        return await LoopThreads().run(
            lambda stop: stoppable(lambda: method(*args, **keywords), stop),
            f"shardproof-{method.__name__.partition('_')[0]}",
        )

    twin.__name__, twin.__qualname__ = f"{method.__name__}_async", f"{method.__qualname__}_async"
    twin.__doc__ = (
        f"Do as `{method.__name__}` in a thread, which has ended when this returns or is cancelled."
    )
    return twin


def to_waiter(call: Callable[P, Result]) -> Callable[P, Result]:
    """Return what has a call made in the thread that waits for this one's work, and waits."""
    # Should the call raise an error, the work is stopped, and the error goes to the caller.
    calls = current.calls

    def ask(*args: P.args, **keywords: P.kwargs) -> Result:
        if calls is None:
            return call(*args, **keywords)
        made: queue.SimpleQueue[Result] = queue.SimpleQueue()
        calls.put(lambda: made.put(call(*args, **keywords)))
        while True:
            go_on()
            with contextlib.suppress(queue.Empty):
                return made.get(timeout=TICK)

    return ask


def tell_done(n_done: int, n_all: int) -> None:
    """Show how much of this thread's work is done, in the thread that waits, if that asked."""
    if current.show is not None:
        to_waiter(current.show)(n_done, n_all)


def closed_apart(close: Callable[[], object]) -> None:
    """Close something in a thread of its own, and wait for that, though not for ever."""
    # So is closed what is dropped: the collector of garbage may run in a thread for which the
    # closing waits, or that holds a lock which it needs.
    task = _WorkThread(lambda _: close())
    if not task.begin():
        close()
        return
    task.wait(_PATIENCE)
    if task.settled:
        task.join()
        task.settled.pop().get()


class Closing:
    """Closes itself at the end of a ``with`` block."""

    def close(self) -> None:
        """Let go of what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_open: weakref.WeakSet[Any] = weakref.WeakSet()


def close_at_exit(one: Any) -> None:
    """Close an object when the interpreter ends, if it is there then."""
    _open.add(one)


# While closing still works: later, the modules that it needs have lost their names, and daemon
# threads stand still, so that a wait for one never ends. What is registered last is called first.
@atexit.register
def _close_all() -> None:
    for one in list(_open):
        with contextlib.suppress(ValueError):  # a daemon thread is in the midst of it
            one.close()


_begins: set[weakref.WeakMethod[Callable[[], None]]] = set()


def begin_in_forks(begin: Callable[[], None]) -> None:
    """Call a method in forked processes, where locks and connections are those of the parent."""
    _begins.add(weakref.WeakMethod(begin, _begins.discard))


def _begin_all() -> None:
    for each in list(_begins):
        begin = each()
        if begin is not None:
            begin()


os.register_at_fork(after_in_child=_begin_all)
