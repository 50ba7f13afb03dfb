"""Puts the stand-ins where code looks for the real functions, and takes them away again."""

import builtins
import contextlib
import glob
import io
import mmap
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from shardproof.testing.faults.file_system._calls import join, leave
from shardproof.testing.faults.file_system._classes import FileIO, Mmap
from shardproof.testing.faults.file_system._numpy import reading, telling_files
from shardproof.testing.faults.file_system._open import opening
from shardproof.testing.faults.file_system._os import stand_ins
from shardproof.testing.faults.file_system._schedule import LOCK, Schedule

__all__ = ["start", "stop"]

_installed = contextlib.ExitStack()

# If somebody else's patch brought one back after its time, it must not be put before itself.
_ours: weakref.WeakSet[Any] = weakref.WeakSet()

# They take functions out of builtins when they are imported.
_EARLY = ("bz2", "tarfile")


def start(schedule: Schedule) -> None:
    """Let a schedule take part in all calls; the first one brings the stand-ins."""
    with LOCK:
        try:
            if join(schedule):
                _install()
        except BaseException:
            stop(schedule)
            raise


def stop(schedule: Schedule) -> None:
    """Undo `start`; the last one takes the stand-ins away.

    Whoever still holds one may go on using it: it makes the real call.
    """
    with LOCK:
        if leave(schedule):
            _installed.close()


def _install() -> None:
    replaced = {id(real): stand_in for real, stand_in in _pairs() if real not in _ours}
    _ours.update(replaced.values())
    for holder in _holders():
        for name, value in list(vars(holder).items()):
            is_static = isinstance(value, staticmethod)
            stand_in = replaced.get(id(value.__func__ if is_static else value))
            if stand_in is not None:
                _put(holder, name, staticmethod(stand_in) if is_static else stand_in)
    _mark_as_supporting(replaced)
    _put_into_numpy()


def _pairs() -> Iterator[tuple[Any, Any]]:
    """Each function or class, and what stands in for it."""
    for name, stand_in in stand_ins():
        yield getattr(os, name), stand_in
    for open_ in {builtins.open, io.open}:
        yield open_, opening(open_)
    yield FileIO.__mro__[1], FileIO
    yield Mmap.__mro__[1], Mmap


def _holders() -> list[Any]:
    modules = [sys.modules[name] for name in _EARLY if name in sys.modules]
    # From Python 3.13 on, classes in there hold functions of os; pathlib uses them.
    classes = [value for value in vars(glob).values() if isinstance(value, type)]
    return [os, builtins, io, mmap, *modules, *classes]


def _put(holder: Any, name: str, stand_in: Any) -> None:
    before = vars(holder)[name]
    setattr(holder, name, stand_in)
    _installed.callback(_put_back, holder, name, stand_in, before)


def _put_back(holder: Any, name: str, stand_in: Any, before: Any) -> None:
    if vars(holder)[name] is stand_in:  # otherwise somebody patched over it, who will undo that
        setattr(holder, name, before)


def _mark_as_supporting(replaced: dict[int, Any]) -> None:
    """Code may ask ``os.open in os.supports_dir_fd``."""
    for functions in (
        os.supports_dir_fd,
        os.supports_effective_ids,
        os.supports_fd,
        os.supports_follow_symlinks,
    ):
        ours = {replaced[id(real)] for real in functions if id(real) in replaced}
        functions.update(ours)
        _installed.callback(functions.difference_update, ours)


def _put_into_numpy() -> None:
    """What is imported later is not reached."""
    numpy: Any = sys.modules.get("numpy")
    files: Any = sys.modules.get("numpy.lib.format")
    if hasattr(numpy, "fromfile") and hasattr(files, "write_array"):
        home = sys.modules[files.write_array.__globals__["__name__"]]  # depends on numpy's version
        _put(numpy, "fromfile", reading(numpy, numpy.fromfile))
        _put(home, "isfileobj", telling_files(home.isfileobj))
