"""What is still open when the interpreter ends is closed while closing still works.

Later, the modules that closing needs have lost their names, and daemon threads stand still: whoever
joins one then waits for ever.
"""

import atexit
import contextlib
import weakref
from typing import Protocol

__all__ = ["Closeable", "close_at_exit"]


class Closeable(Protocol):
    """Something with threads or descriptors of its own, such as a generator."""

    def close(self) -> None:
        """Give them back; do nothing if that was done before."""
        ...


_open: weakref.WeakSet[Closeable] = weakref.WeakSet()


def close_at_exit(one: Closeable) -> None:
    """Close an object when the interpreter ends, if it is there then."""
    _open.add(one)


def _close_all() -> None:
    for one in list(_open):
        with contextlib.suppress(ValueError):  # a daemon thread is in the midst of it
            one.close()


atexit.register(_close_all)
