"""What threads hand to each other, and waits for it that end in time, whatever signals come."""

import collections
import contextlib
import queue
import threading
import time
from typing import Generic, TypeVar

__all__ = ["Mailbox"]

Item = TypeVar("Item")


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
        """Take the oldest item.

        Args:
            timeout: Seconds to wait for one.

        Raises:
            queue.Empty: None came.
        """
        end = time.monotonic() + timeout
        while True:
            with contextlib.suppress(IndexError):
                item = self._items.popleft()
                break
            if not self._is_empty.acquire(timeout=max(0.0, end - time.monotonic())):
                raise queue.Empty
        if self._items:  # of two that came at once, the second wakes nobody
            self._wake()
        return item

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # somebody has done it already
            self._is_empty.release()
