"""How much time a piece of work has left, and whether it is still wanted."""

import threading
import time

from shardproof._base.work import Cancelled, go_on
from shardproof.errors import SourceError

__all__ = ["Deadline"]


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
        """Return if the work is still wanted and there is time left.

        Raises:
            Cancelled: It is not wanted any more.
            SourceError: The time is up.
        """
        go_on()
        if self.stop.is_set():
            raise Cancelled
        if not self.left(1.0):
            raise SourceError(f"not done after {self.spent():.3g}s", kind="late")

    def within(self, seconds: float) -> "Deadline":
        """Return the deadline of a part of the work, which has so many seconds at most."""
        return Deadline(self.left(seconds), self.stop)
