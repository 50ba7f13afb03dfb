"""Threads that are started, and interrupts that stay interrupts.

Whoever starts a thread waits until it runs, in a lock of Python's own. An interrupt there may find
the lock released and come out as ``RuntimeError: release unlocked lock``, with the
KeyboardInterrupt behind it (seen in Python 3.11 to 3.13).
"""

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["interruptible", "start"]


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
