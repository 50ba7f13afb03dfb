"""Threads that are started, and interrupts that stay interrupts.

Python raises KeyboardInterrupt wherever the main thread happens to be. While it starts a thread,
it waits in a lock of Python's own, and the interrupt may come out as ``RuntimeError: release
unlocked lock`` with the KeyboardInterrupt behind it (seen in Python 3.11 to 3.13); a thread that
was about to be started stays listed, and never runs. In the callback of a weak reference, which
every import ends with, the interrupt is printed (``Exception ignored in``) and lost, and may leave
a lock behind for which every other import waits.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import TypeVar

__all__ = ["interruptible", "listening", "start", "until_interrupted"]

Result = TypeVar("Result")

_TICK = 0.1
_LATER = 0.005


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Let an interrupt that a lock turned into an error be an interrupt again."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


def start(thread: threading.Thread, stop: threading.Event | None = None) -> None:
    """Start a thread; if that is interrupted, set ``stop``, since the thread may run already."""
    try:
        with interruptible():
            thread.start()
    except BaseException:
        if stop is not None:
            stop.set()
        raise


class _Interrupts:
    """Counts them, so that a lost one is known, and raises them where nothing waits for them."""

    def __init__(self) -> None:
        self.n = 0
        self._is_awaited = False

    def came(self, number: int, frame: FrameType | None) -> None:
        """Take in a signal: an interrupt, or the alarm that brings one back; another's is one."""
        self.n += number == signal.SIGINT or not self.n
        if self.n == 1 and self._is_awaited:
            return
        if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _LATER)
            return
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Do not raise the first one."""
        self._is_awaited = True
        try:
            yield
        finally:
            self._is_awaited = False


_interrupts = _Interrupts()


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Raise interrupts where that does no harm, and count them; ignored ones stay ignored."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    alarm = signal.signal(signal.SIGALRM, _interrupts.came)
    signal.signal(signal.SIGINT, _interrupts.came)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, alarm)
        _interrupts.n = 0


def until_interrupted(work: Callable[[threading.Event], Result]) -> Result:
    """Return what ``work`` returns, done in a thread of its own, where no interrupt is raised.

    The first interrupt sets the event that ``work`` is given, and is raised once work has ended by
    itself; the second one is raised at once. That needs `listening`; without it, the first one is
    raised at once, too, and sets the event. For the main thread, and for one work at a time.
    """
    stop = threading.Event()
    outcome: Future[Result] = Future()
    running = threading.Lock()
    running.acquire()

    def run() -> None:
        try:
            outcome.set_result(work(stop))
        except BaseException as error:
            outcome.set_exception(error)
        running.release()

    thread = threading.Thread(target=run, name="shardproof-work", daemon=True)
    try:
        with _interrupts.awaited():
            start(thread, stop)
            # Not Thread.join, which takes a thread for ended when it is interrupted (Python 3.11).
            while not running.acquire(timeout=_TICK):
                if _interrupts.n:  # not set by the handler, which may come while it is being set
                    stop.set()
            thread.join()
    finally:
        stop.set()
    if _interrupts.n:
        raise KeyboardInterrupt
    return outcome.result()
