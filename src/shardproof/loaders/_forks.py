"""What a forked process must not take over: locks that a thread of its parent may hold."""

import os
import weakref
from typing import Protocol

__all__ = ["Starts", "start_in_children"]


class Starts(Protocol):
    """Something with locks, threads or descriptors of its own."""

    def start(self) -> None:
        """Forget those there are, and begin with new ones when they are needed."""
        ...


_owners: weakref.WeakSet[Starts] = weakref.WeakSet()


def start_in_children(owner: Starts) -> None:
    """Let an object start anew in each process that is forked from this one, while it lives."""
    _owners.add(owner)


def _start_all() -> None:
    for owner in list(_owners):
        owner.start()


os.register_at_fork(after_in_child=_start_all)
