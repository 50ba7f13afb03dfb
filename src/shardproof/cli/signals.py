"""Signals that end a command: it stops what it is at, clears up, and ends by a code of its own.

An interrupt (SIGINT), the end of a job (SIGTERM) and a terminal that is gone (SIGHUP) go the same
way, as a KeyboardInterrupt of the main thread. One that is ignored when the command starts, as
under nohup(1), stays ignored. Only the command takes signals; a call of the library never does.

Python raises KeyboardInterrupt wherever the main thread happens to be. In the callback of a weak
reference, which every import ends with, it is printed (``Exception ignored in``) and lost, and may
leave a lock behind for which every other import waits.
"""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from shardproof.cli import ENDING, end_at_once

_LATER = 0.005
_SAME = 1.0  # seconds in which a signal that ends a job is the same one


class Signals:
    """Raises the signals, and knows which was the first."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._last = 0.0

    def end(self) -> NoReturn:
        """End this process as the first of them asks; those that still come change nothing."""
        if self.first is not None:
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
        # Where a KeyboardInterrupt has left text that was executed, as by dataclasses, CPython ends
        # `python -m` by SIGINT in spite of the code; text that ends well makes it forget that.
        exec("")  # noqa: S102
        sys.exit(128 + (self.first or signal.SIGINT))

    def came(self, number: int, frame: FrameType | None) -> None:
        """Take in a signal: an interrupt, or the alarm that brings one back."""
        if number != signal.SIGALRM:
            is_again = self.first is not None and time.monotonic() - self._last < _SAME
            if is_again and number != signal.SIGINT:
                return  # a scheduler ends a job by a signal to each process, and one to all of them
            self.first, self._last = self.first or number, time.monotonic()
        if frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _LATER)
            return
        raise KeyboardInterrupt


signals = Signals()


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Raise signals that end a command where that does no harm; ignored ones stay ignored."""
    # Not in another thread than the main one, nor where another handler of interrupts is set.
    is_main = threading.current_thread() is threading.main_thread()
    ours = (signal.default_int_handler, end_at_once)
    if not is_main or signal.getsignal(signal.SIGINT) not in (*ours, signal.SIG_IGN):
        yield
        return
    before = {
        number: handler
        for number in (*ENDING, signal.SIGALRM)
        if (handler := signal.getsignal(number)) in (*ours, signal.SIG_DFL)
    }
    signals.first = None
    for number in before:
        signal.signal(number, signals.came)
    try:
        yield
    finally:
        for number, handler in before.items():
            if number == signal.SIGALRM:
                signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(number, handler)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Raise the interrupt again that a lock turned into an error."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise
