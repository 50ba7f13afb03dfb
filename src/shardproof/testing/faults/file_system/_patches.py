"""Puts the stand-ins where code looks for the real functions, and takes them away again."""

import builtins
import contextlib
import functools
import glob
import io
import mmap
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from shardproof.testing.faults.file_system._open import FileIO, Mmap, opening
from shardproof.testing.faults.file_system._os import stand_ins
from shardproof.testing.faults.file_system._schedule import (
    ACTIVE,
    LOCK,
    Schedule,
    absolute,
    through,
    watched,
)

_fstat = os.fstat

_installed = contextlib.ExitStack()

# Another patch may have brought one back after its time: it must not be put before itself.
_ours: weakref.WeakSet[Any] = weakref.WeakSet()


def start(schedule: Schedule) -> None:
    """Add a schedule to those of all calls; the first one brings the stand-ins."""
    with LOCK:
        try:
            ACTIVE.append(schedule)
            if len(ACTIVE) == 1:
                _install()
        except BaseException:
            stop(schedule)
            raise


def stop(schedule: Schedule) -> None:
    """Undo `start`; the last one takes the stand-ins away."""
    with LOCK:
        if schedule in ACTIVE:
            ACTIVE.remove(schedule)
        if not ACTIVE:
            _installed.close()


def _install() -> None:
    pairs: list[tuple[Any, Any]] = [(getattr(os, name), made) for name, made in stand_ins()]
    pairs += [(open_, opening(open_)) for open_ in {builtins.open, io.open}]
    pairs += [(FileIO.__mro__[1], FileIO), (Mmap.__mro__[1], Mmap)]
    replaced = {id(real): stand_in for real, stand_in in pairs if real not in _ours}
    _ours.update(replaced.values())
    # They take functions out of builtins when they are imported.
    early = [sys.modules[name] for name in ("bz2", "tarfile") if name in sys.modules]
    # From Python 3.13 on, classes in there hold functions of os; pathlib uses them.
    classes = [value for value in vars(glob).values() if isinstance(value, type)]
    for holder in (os, builtins, io, mmap, *early, *classes):
        for name, value in list(vars(holder).items()):
            is_static = isinstance(value, staticmethod)
            stand_in = replaced.get(id(value.__func__ if is_static else value))
            if stand_in is not None:
                _put(holder, name, staticmethod(stand_in) if is_static else stand_in)
    # So that code may ask ``os.open in os.supports_dir_fd``.
    for functions in (
        os.supports_dir_fd,
        os.supports_effective_ids,
        os.supports_fd,
        os.supports_follow_symlinks,
    ):
        ours = {replaced[id(real)] for real in functions if id(real) in replaced}
        _installed.callback(functions.difference_update, ours)  # first: an interrupt may come
        functions.update(ours)
    _put_into_numpy()


def _put(holder: Any, name: str, stand_in: Any) -> None:
    before = vars(holder)[name]  # a staticmethod as it is, which getattr would unwrap

    def put_back() -> None:
        if vars(holder)[name] is stand_in:  # or else another patch is over it, to be undone
            setattr(holder, name, before)

    _installed.callback(put_back)  # before there is anything to put back: an interrupt may come
    setattr(holder, name, stand_in)


def _put_into_numpy() -> None:
    """Replace what numpy reads and asks with; what is imported later is not reached."""
    numpy: Any = sys.modules.get("numpy")
    files: Any = sys.modules.get("numpy.lib.format")
    if not (hasattr(numpy, "fromfile") and hasattr(files, "write_array")):
        return
    home = sys.modules[files.write_array.__globals__["__name__"]]  # depends on numpy's version
    is_file_object: Callable[[Any], bool] = home.isfileobj

    # To be told that a file is none makes numpy.save call the file's own ``write``.
    @functools.wraps(is_file_object)
    def isfileobj(file: Any) -> bool:
        return bool(is_file_object(file)) and not (watched(file) and file.writable())

    _put(numpy, "fromfile", _reading(numpy, numpy.fromfile))
    _put(home, "isfileobj", isfileobj)


def _reading(numpy: Any, real: Callable[..., Any]) -> Callable[..., Any]:
    # The real one takes no notice of errors: it returns fewer items, or, without a ``count``, what
    # the memory held before (found with strace); here those are bytes 0xAA. A call is one read.

    @functools.wraps(real)
    def fromfile(
        file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0, **like: Any
    ) -> Any:
        if sep or not watched(file):
            return real(file, dtype, count, sep, offset, **like)
        if isinstance(file, str | bytes | os.PathLike):
            with open(file, "rb") as opened:
                return fromfile(opened, dtype, count, sep, offset, **like)
        item = numpy.dtype(dtype)
        held = max(0, _fstat(file.fileno()).st_size - file.tell() - offset) // (item.itemsize or 1)
        n_items = held if count < 0 else min(count, held)
        size: int = n_items * item.itemsize
        found = []

        def read(limit: int | None) -> int:
            if limit is None or limit:  # fread(3) asks again after a short read
                found.append(real(file, dtype, count, sep, offset, **like))
                return size
            nothing = real(file, dtype, 0, sep, offset, **like)
            if count < 0:
                nothing = numpy.empty(n_items, item)
                nothing.view(numpy.uint8).fill(0xAA)
            found.append(nothing)
            return 0

        through([("read", (absolute(file),))], read, size=size, instead=lambda: read(0))
        return found[0]

    return fromfile
