"""An end for code that would wait for ever.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator

__all__ = ["time_limit"]


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` inside, wherever the main thread is, once the time is up.

    It ends whatever Python waits for: a named pipe that nobody writes to, a lock, another thread.
    Code of C that never returns to Python it can't end; for that take another process, as
    `shardproof.testing.contracts` does. Who holds the error back is interrupted again after as many
    seconds, and at the end of the context it is raised all the same.

    Limits nest: the one that ends first counts. It uses SIGALRM, whose handler and timer, as of
    pytest-timeout, are put back at the end.

    Args:
        seconds: More than 0.

    Raises:
        TimeoutError: It did not end in time.
        RuntimeError: This is not the main thread, which alone gets signals.
        ValueError: No number of seconds above 0.

    Example:
        >>> from shardproof.testing import layout, shards_dir, time_limit
        >>> with shards_dir(layout(fifo=[0])) as path, time_limit(0.1):
        ...     (path / "acts000000.bin").read_bytes()
        Traceback (most recent call last):
        TimeoutError: expected an end within 0.1 s, found none...
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds: expected a number above 0, found {seconds!r}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("time_limit: expected the main thread, which alone gets signals")
    if 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= seconds:
        yield  # somebody else's ends first
        return
    alarm = _Alarm(seconds)
    try:
        yield
    finally:
        alarm.end()
    if alarm.has_rung:
        raise alarm.error()


class _Alarm:
    """A signal every so many seconds, which raises an error in the main thread."""

    def __init__(self, seconds: float) -> None:
        self.has_rung = False
        self._seconds = seconds
        self._is_on = True
        self._began = time.monotonic()
        self._handler = signal.signal(signal.SIGALRM, self._ring)
        self._timer = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)

    def error(self) -> TimeoutError:
        return TimeoutError(
            f"expected an end within {self._seconds} s, found none; "
            "who opens a named pipe (a fifo) without O_NONBLOCK waits for a writer"
        )

    def _ring(self, _number: int, _frame: object) -> None:
        if self._is_on:
            self.has_rung = True
            raise self.error()

    def end(self) -> None:
        """Put back what was there before; it may ring once more at the beginning of this."""
        try:
            self._is_on = False
        finally:
            self._is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._handler or signal.SIG_DFL)
            remaining, interval = self._timer
            if remaining:
                left = remaining - (time.monotonic() - self._began)
                signal.setitimer(signal.ITIMER_REAL, max(left, 1e-6), interval)
