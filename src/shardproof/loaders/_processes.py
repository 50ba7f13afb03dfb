"""What begins anew in a forked process, and ends before the interpreter does.

A forked process must not take over locks that a thread of its parent may hold.
"""

import os
import weakref
from typing import Protocol

from shardproof._base.at_exit import close_at_exit

__all__ = ["Living", "end_with_process"]


class Living(Protocol):
    """Something with locks, threads or descriptors of its own."""

    def start(self) -> None:
        """Forget those there are, and begin with new ones when they are needed."""
        ...

    def close(self) -> None:
        """Give them back."""
        ...


_living: weakref.WeakSet[Living] = weakref.WeakSet()


def end_with_process(one: Living) -> None:
    """Let an object start anew in each process that is forked from this one, and close in time."""
    _living.add(one)
    close_at_exit(one)


def _start_all() -> None:
    for one in list(_living):
        one.start()


os.register_at_fork(after_in_child=_start_all)
