"""Threads that are started, stopped and awaited, whatever interrupts come meanwhile.

Python raises KeyboardInterrupt wherever the main thread happens to be. A lock that is written in
Python (`threading.Event`, `threading.Condition`, those of `concurrent.futures`) then stays held for
ever: its ``__enter__`` has taken it, and the block that would give it back has not begun. Starting
a thread and setting an event wait in such locks. So here the main thread enters none: a thread is
started by another one, on which no interrupt is ever raised; a message is a plain
attribute; and what is waited for is a lock of the interpreter's own, which is taken or is not.

The collector of garbage runs in any thread, too, between any two steps. What it finds is closed
there and then: a wait for a thread may be one for that very thread, or for one that needs a lock
which the interrupted code holds. So nothing is waited for where it runs.
"""

import _thread
import collections
import contextlib
import functools
import gc
import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

TICK = 0.05
"""Seconds after which a wait looks around, in case that it was not woken."""

_LONG = 1e6
"""Seconds that stand for no limit."""

Item = TypeVar("Item")


def is_main() -> bool:
    """Whether interrupts are raised in this thread."""
    return threading.get_ident() == threading.main_thread().ident


class _Told:
    """What is known of the latest collection: that it began, or that it ended."""

    __slots__ = ("start",)


_Told.stop = _Told.start  # type: ignore[attr-defined] # one place for both: the latest stays
_latest, _here = _Told(), threading.local()

# No function in Python: in its first step an interrupt would be raised that came meanwhile, and be
# lost. Both keep what is told under the name of the phase, "start" or "stop".
gc.callbacks += [functools.partial(setattr, _latest), functools.partial(setattr, _here)]


def is_collecting() -> bool:
    """Whether the collector of garbage is at work in this thread, so that nothing may be awaited.

    There is one collection at a time in a process: the latest that was told of here is still under
    way if nothing was told of anywhere since it began.
    """
    return getattr(_here, "start", _here) is getattr(_latest, "start", None)


class Mailbox(Generic[Item]):
    """A queue without end, for any number of threads, of which one may be interrupted.

    ``queue.Queue`` may keep its lock when an interrupt comes at a bad moment. ``queue.SimpleQueue``
    waits for ever, whatever its timeout, if a handler of a signal takes longer than what is left
    of it (seen in Python 3.11 and 3.12).
    """

    def __init__(self) -> None:
        self._items: collections.deque[Item] = collections.deque()
        self._is_empty = threading.Lock()

    def put(self, item: Item) -> None:
        """Add an item; returns at once."""
        self._items.append(item)
        self._wake()

    def get(self, timeout: float) -> Item:
        """Take the oldest item; raise ``queue.Empty`` if none comes within ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while True:
            with contextlib.suppress(IndexError):
                item = self._items.popleft()
                break
            if not self._is_empty.acquire(timeout=max(0.0, end - time.monotonic())):
                raise queue.Empty
        if self._items:  # of two that came at once, the second wakes no thread
            self._wake()
        return item

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # another thread has done it already
            self._is_empty.release()


class Stop(threading.Event):
    """An event that the main thread may set and wait for: it has no lock that can stay held."""

    def __init__(self) -> None:
        super().__init__()
        self._is_told: object = False
        self._gate: Mailbox[None] = Mailbox()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return bool(self._is_told)

    def set(self) -> None:
        """Set it, and wake the threads that wait for it."""
        self._is_told = True
        self._gate.put(None)

    def clear(self) -> None:
        """Take back that it was set."""
        self._is_told = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; return whether it is."""
        end = time.monotonic() + (_LONG if timeout is None else timeout)
        with contextlib.suppress(queue.Empty):
            while not self._is_told:
                self._gate.get(max(0.0, end - time.monotonic()))
        if self._is_told:
            self._gate.put(None)  # for the next thread that waits
        return self.is_set()

    def when_gone(self, owner: object) -> weakref.ref[object]:
        """Set it, too, once the owner is no longer referenced; this wakes no thread that waits.

        It works as long as the reference that this returns is held.
        """
        # No function in Python, as above: what is kept is the reference itself, which is true.
        return weakref.ref(owner, functools.partial(setattr, self, "_is_told"))


class Thread:
    """One thread of the interpreter's own, which costs half as much as one of `threading`.

    Args:
        run: What it does; it raises nothing.
    """

    def __init__(self, run: Callable[[Stop], object]) -> None:
        self.stop = Stop()
        self._work = run
        self._handles: list[Any] = []
        self._ended: list[None] = []
        self._bell: Mailbox[None] = Mailbox()

    def begin(self) -> bool:
        """Start it, without a wait; to be called once."""
        if sys.is_finalizing():  # Python 3.11 would make one that never runs
            return False
        # By one call into the interpreter: between two, an interrupt may come.
        with contextlib.suppress(RuntimeError):
            if sys.version_info >= (3, 13):
                self._handles.extend(map(_thread.start_joinable_thread, [self._run]))
            else:
                self._handles.extend(map(_thread.start_new_thread, [self._run], [()]))
        return bool(self._handles)

    def _run(self) -> None:
        try:
            sys.settrace(threading.gettrace())  # as each thread of `threading` is
            sys.setprofile(threading.getprofile())
            self._work(self.stop)
        finally:
            if sys.version_info < (3, 13):  # where it would stay listed if it was asked its name
                threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]
            self._ended.append(None)
            self._bell.put(None)

    @property
    def has_ended(self) -> bool:
        """Whether it does not run, and will not, once it was to begin."""
        return bool(self._ended or not self._handles)

    def end(self) -> None:
        """Set `stop`, and wait until the thread has ended.

        Interrupted, it is to be called again: then nothing of the wait is lost.
        """
        self.stop.set()
        while not self.has_ended:
            _wait(self._bell)
        if sys.version_info >= (3, 13):
            for handle in self._handles:
                handle.join()


class Threads:
    """Some threads that run one function, from when they begin until they have ended.

    Args:
        run: What each of them does; it takes the event that stops it.
        name: What their names begin with.
    """

    def __init__(self, run: Callable[[Stop], object], name: str) -> None:
        self.stop = Stop()
        self._work, self._name = run, name
        self._launchers: list[int] = []
        self._is_launched = False
        self._threads: list[threading.Thread] = []
        self._inside: set[int] = set()
        self._pid = os.getpid()
        self._ended: list[None] = []
        self._bell: Mailbox[None] = Mailbox()

    def begin(self, n_threads: int = 1) -> None:
        """Start so many of them, without a wait; to be called once."""
        if is_main():
            _launch(self._start, n_threads, known=self._launchers)
        else:
            self._launchers.append(threading.get_ident())
            try:
                self._start_each(n_threads)
            except RuntimeError:
                if not self._threads:
                    raise
            finally:
                self._is_launched = True

    def _start_each(self, n_threads: int) -> None:
        for number in range(n_threads):
            name = f"{self._name}-{number}" if n_threads > 1 else self._name
            # Daemons, so that an interpreter that ends does not wait before it stops them.
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _start(self, n_threads: int) -> None:
        try:
            self._start_each(n_threads)
        except RuntimeError:
            if not self._threads:  # the system gives no more of them: then this one does it
                self._do_work()
        finally:
            self._is_launched = True
            self._bell.put(None)

    def _run(self) -> None:
        try:
            self._do_work()
        finally:
            self._ended.append(None)
            self._bell.put(None)

    def _do_work(self) -> None:
        self._inside.add(threading.get_ident())
        try:
            self._work(self.stop)
        finally:
            self._inside.discard(threading.get_ident())

    @property
    def have_ended(self) -> bool:
        """Whether none of them runs, or will, but for the one that asks."""
        is_inside = threading.get_ident() in self._inside
        if not self._launchers or (is_inside and not self._threads):
            return True
        return self._is_launched and len(self._ended) + is_inside == len(self._threads)

    def end(self) -> None:
        """Set `stop`, and wait until they have ended, but for the one that calls it.

        Interrupted, it is to be called again: then nothing of the wait is lost. Where the collector
        calls it, there is no wait; and in a forked process there are none.
        """
        self.stop.set()
        if is_collecting() or os.getpid() != self._pid:
            return
        while not self.have_ended:
            _wait(self._bell)
        # Not earlier: in Python 3.11, a join that is interrupted takes the thread for ended.
        for thread in self._threads:
            if thread.ident != threading.get_ident():
                thread.join()


def start(thread: threading.Thread, stop: threading.Event | None = None) -> None:
    """Start a thread; if that is interrupted, set ``stop``, since the thread may run already."""
    if not is_main():
        thread.start()
        return
    launchers: list[int] = []
    outcome: list[BaseException | None] = []
    bell: Mailbox[None] = Mailbox()

    def begin() -> None:
        problem = None
        try:
            thread.start()
        except BaseException as error:
            problem = error
        outcome.append(problem)
        bell.put(None)

    try:
        _launch(begin, known=launchers)
        while not outcome:
            _wait(bell)
    except BaseException:
        if stop is not None:
            stop.set()
        while launchers and not outcome:  # from here on it runs, or never will
            _wait(bell)
        raise
    if outcome[0] is not None:
        raise outcome[0]


def _launch(work: Callable[..., None], *args: object, known: list[int]) -> None:
    """Call something in a thread of the interpreter's own, which is known if it was started.

    By one call into the interpreter: between two, an interrupt may come.
    """
    known.extend(map(_thread.start_new_thread, [work], [args]))


def _wait(bell: Mailbox[None]) -> None:
    with contextlib.suppress(queue.Empty):
        bell.get(TICK)
