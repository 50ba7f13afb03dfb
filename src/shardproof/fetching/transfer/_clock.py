"""How much time is left, and a wait that ends when it is up or when it is told to."""

import threading
import time

from shardproof._base.work import go_on
from shardproof.errors import SourceError

__all__ = ["Clock", "StoppedError"]


class StoppedError(Exception):
    """Whoever wanted the work wants it no more."""


class Clock:
    """The time that a piece of work has.

    Args:
        seconds: How many; None for no end.
        stop: Set by whoever wants the work to end before.
    """

    def __init__(self, seconds: float | None, stop: threading.Event) -> None:
        self.began = time.monotonic()
        self.end = None if seconds is None else self.began + seconds
        self.stop = stop

    def spent(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.began

    def left(self, at_most: float) -> float:
        """Seconds until its end; 0 when it is up."""
        if self.end is None:
            return at_most
        return max(0.0, min(at_most, self.end - time.monotonic()))

    def go_on(self) -> None:
        """Return if the work is wanted still, and there is time left.

        Raises:
            StoppedError: It is wanted no more.
            SourceError: The time is up.
        """
        go_on()
        if self.stop.is_set():
            raise StoppedError
        if not self.left(1.0):
            raise SourceError(f"not done after {self.spent():.3g}s", late=True)

    def within(self, seconds: float) -> "Clock":
        """Return a clock for a part of the work."""
        return Clock(self.left(seconds), self.stop)
