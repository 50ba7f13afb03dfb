"""What begins anew in a process that is forked, which takes over no lock and no connection.

A lock may be held by a thread that only the parent has. And two who ask over one connection read
what the other one is answered.
"""

import os
import weakref
from collections.abc import Callable

__all__ = ["begin_in_forks"]

_begins: set[weakref.WeakMethod[Callable[[], None]]] = set()


def begin_in_forks(begin: Callable[[], None]) -> None:
    """Call a method in each process that is forked from this one, while its object lives."""
    _begins.add(weakref.WeakMethod(begin, _begins.discard))


def _begin_all() -> None:
    for each in list(_begins):
        begin = each()
        if begin is not None:
            begin()


os.register_at_fork(after_in_child=_begin_all)
