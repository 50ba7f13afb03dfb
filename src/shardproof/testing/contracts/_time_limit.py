"""An end for code that would wait for ever.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` inside, wherever the main thread is, once the time is up.

    It ends whatever Python waits for: a named pipe without a writer, a lock, another thread.
    Code of C that never returns to Python it can't end; for that take another process, as
    `shardproof.testing.contracts` does. Code that holds the error back is interrupted again after
    as many seconds, and at the end of the context it is raised all the same.

    Limits nest: the one that ends first counts. It uses SIGALRM; another timer, as of
    pytest-timeout, rings inside too, and handler and timer are put back at the end.

    Args:
        seconds: More than 0.

    Raises:
        TimeoutError: It did not end in time.
        RuntimeError: This is not the main thread, which alone gets signals.
        ValueError: No number of seconds above 0.

    Example:
        >>> from shardproof.testing import Layout, shards_dir, time_limit
        >>> with shards_dir(Layout(fifo=[0])) as path, time_limit(0.1):
        ...     (path / "acts000000.bin").read_bytes()
        Traceback (most recent call last):
        TimeoutError: expected an end within 0.1 s, found none...
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds: expected a number above 0, found {seconds!r}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("time_limit: expected the main thread, which alone gets signals")
    alarm = _Alarm(seconds)
    try:
        alarm.start()
        yield
    finally:
        alarm.is_on = False  # before any call, into whose first step it could ring
        alarm.end()
    if alarm.has_rung:
        raise alarm.error()


class _Alarm:
    """A signal every so many seconds; the rings of whoever had the one timer come in between."""

    def __init__(self, seconds: float) -> None:
        self.has_rung = False
        self._seconds = self._left = seconds
        self._handler = signal.getsignal(signal.SIGALRM)
        self._their_left, self._interval = signal.getitimer(signal.ITIMER_REAL)

    def error(self) -> TimeoutError:
        return TimeoutError(
            f"expected an end within {self._seconds} s, found none; "
            "opening a named pipe (a fifo) without O_NONBLOCK waits for a writer"
        )

    def start(self) -> None:
        """Begin; it may ring even before this returns."""
        self.is_on = True
        signal.signal(signal.SIGALRM, self._ring)
        self._wind()

    def _wind(self) -> None:
        self._step = min(self._left, self._their_left or math.inf)
        signal.setitimer(signal.ITIMER_REAL, self._step)

    def _pass(self, seconds: float) -> bool:
        """Count down; return whether the timer that was on before rings."""
        self._left -= seconds
        if not self._their_left:
            return False
        self._their_left -= seconds
        is_theirs = self._their_left <= 0
        if is_theirs:
            self._their_left = self._interval
        return is_theirs

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if not self.is_on:
            return
        is_theirs = self._pass(self._step)
        is_ours = self._left <= 0
        self._left = self._seconds if is_ours else self._left
        self.has_rung |= is_ours
        self._wind()
        if is_theirs and callable(self._handler):
            self._handler(number, frame)
        elif is_theirs and self._handler is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if is_ours:
            raise self.error()

    def end(self) -> None:
        """Put back what was there before, once it is no longer on."""
        left = signal.setitimer(signal.ITIMER_REAL, 0)[0]
        if self._pass(self._step - left):
            self._their_left = _AT_ONCE
        signal.signal(signal.SIGALRM, self._handler or signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, self._their_left, self._interval)


_AT_ONCE = 1e-6  # 0 would turn the timer off
