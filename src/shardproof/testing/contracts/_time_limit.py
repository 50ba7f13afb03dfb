"""An end for code that would wait for ever."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` inside, wherever the main thread is, once the time is up.

    It ends whatever Python waits for: a named pipe without a writer, a lock, another thread.
    Code of C that never returns to Python it can't end; for that take another process, as
    `shardproof.testing.contracts` does. Code that holds the error back is interrupted again after
    as many seconds, and at the end of the context it is raised all the same.

    Limits nest: the one that ends first counts. It uses SIGALRM: another timer that is due inside,
    as of pytest-timeout, rings once, and at the end handler and timer are put back.

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
    error = TimeoutError(
        f"expected an end within {seconds} s, found none; "
        "opening a named pipe (a fifo) without O_NONBLOCK waits for a writer"
    )
    begin, is_on, has_rung = time.monotonic(), True, False
    theirs = signal.getsignal(signal.SIGALRM)
    their_left, their_interval = signal.getitimer(signal.ITIMER_REAL)

    def passed() -> float:
        return time.monotonic() - begin

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal has_rung, their_left
        if not is_on:
            return
        if their_left and callable(theirs) and passed() >= their_left:
            their_left = their_interval and passed() + their_interval
            signal.setitimer(signal.ITIMER_REAL, max(seconds - passed(), _AT_ONCE), seconds)
            theirs(number, frame)
            return
        has_rung = True
        raise error

    try:
        signal.signal(signal.SIGALRM, ring)
        # Again after as many seconds, for code that holds the error back.
        signal.setitimer(signal.ITIMER_REAL, min(seconds, their_left or seconds), seconds)
        yield
    finally:
        is_on = False  # before any call, into whose first step it could ring
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, theirs or signal.SIG_DFL)
        if their_left:
            left = max(their_left - passed(), _AT_ONCE)
            signal.setitimer(signal.ITIMER_REAL, left, their_interval)
    if has_rung:
        raise error


_AT_ONCE = 1e-6  # 0 would turn the timer off
