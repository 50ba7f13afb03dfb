"""File-system calls that fail, are slow or short, or kill the process, at the call you choose.

Calls are intercepted where Python code makes them: in this process, on all its threads, for files
below one directory. The files are real, and so is every call for which nothing is planned.
"""

import builtins
import contextlib
import errno as errors
import glob
import io
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Self, TypedDict, Unpack

from shardproof.testing.faults.file_system._open import FileIO, Mmap, of_numpy, opening
from shardproof.testing.faults.file_system._os import stand_ins
from shardproof.testing.faults.file_system._schedule import (
    ACTIVE,
    ANY,
    LOCK,
    Call,
    FaultKind,
    Outcome,
    PlannedFault,
    Root,
    Schedule,
)
from shardproof.testing.samples._keywords import (
    expect,
    expect_number,
    integer,
    one_of,
    refuse_unknown,
)

__all__ = ["OPERATIONS", "Call", "FileSystemFaults", "MakeShardFaults", "Outcome", "PlannedFault"]

OPERATIONS = (
    *("chmod", "fsync", "link", "mkdir", "mmap", "open", "read", "readdir", "rename", "rmdir"),
    *("scandir", "stat", "truncate", "unlink", "write"),
)
"""What a fault can be planned for; besides these there is ``"any"``, which means each of them."""

_FEWEST_BYTES = {"read": 0, "write": 1}  # 0 is the end of a file; a writer would write forever


class _When(TypedDict, total=False):
    nth: int
    times: int | None
    match: str | None
    optional: bool


class FileSystemFaults:
    """A context manager in which calls about files below one directory do as planned.

    docs/faults.md says which files and calls count, and what a call does where several faults meet.
    Contexts nest, and may overlap. A call that lies below two roots suffers for both.

    All verbs take the same keywords, which say what calls suffer:

    * ``nth``: the first of the matching calls, counted from 1 when the fault is planned;
    * ``times``: how many, one after the other; None, the default, for all from then on;
    * ``match``: a pattern for the file's name, or for as many last parts of its path as the pattern
      has (`pathlib.PurePath.match`); either path of a rename or a link will do. None, the default,
      for every file;
    * ``optional``: whether it is all right that no such call comes.

    All raise a TypeError for an argument of another type, and a ValueError for an unknown operation
    or a number out of range; `short` also for an operation that moves no bytes.

    On leaving the context every fault must have taken effect at least once, unless it was planned
    with ``optional=True``. Otherwise an AssertionError says which did not, and what calls there
    were. An exception that leaves the context becomes its cause; to an AssertionError the text is
    added as a note.

    Args:
        path: The directory. It and everything below it suffers, nothing else.

    Raises:
        OSError: It is not there, or is no directory.

    Example:
        >>> import errno
        >>> from shardproof import validate
        >>> with FileSystemFaults(shards_dir) as fs:
        ...     fault = fs.fail("open", errno.EIO, match="acts000001.bin")
        ...     report = validate(shards_dir)
        >>> tuple(finding.path.name for finding in report.findings)
        ('acts000001.bin',)
        >>> fault
        fail('open', EIO, nth=1, match='acts000001.bin')
        >>> fault.reached
        True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._schedule = Schedule(Root(path))
        self._entered = False

    def fail(self, operation: str, errno: int, **when: Unpack[_When]) -> PlannedFault:
        """Make calls raise the OSError that the real one raises for an error; nothing is done.

        Args:
            operation: One of `OPERATIONS`, or ``"any"``.
            errno: A number of the module `errno`. EINTR becomes an InterruptedError, which in
                reality Python keeps from the code under test (PEP 475). The buffers of `open`
                repeat such a call, so it needs a ``times``.
            **when: Which calls: ``nth``, ``times``, ``match``, ``optional``, as said above.
        """
        integer("errno", errno)
        if errno not in errors.errorcode:
            raise ValueError(f"errno: expected a number of the module errno, found {errno}")
        if errno == errors.EINTR and when.get("times") is None:
            raise ValueError("times: expected a number for EINTR, which would be repeated forever")
        return self._plan(FaultKind.FAIL, operation, errno, when)

    def slow(self, operation: str, seconds: float, **when: Unpack[_When]) -> PlannedFault:
        """Make calls wait before they are made; leaving the context ends all waits.

        Args:
            operation: One of `OPERATIONS`, or ``"any"``.
            seconds: How long one call waits.
            **when: Which calls: ``nth``, ``times``, ``match``, ``optional``, as said above.

        Example:
            >>> from shardproof import validate
            >>> with FileSystemFaults(shards_dir) as fs:
            ...     fault = fs.slow("stat", 0.001, match="acts*.bin")
            ...     report = validate(shards_dir)
            >>> report.ok, fault.reached
            (True, True)
        """
        expect_number("seconds", seconds, threading.TIMEOUT_MAX)
        return self._plan(FaultKind.SLOW, operation, seconds, when)

    def short(self, operation: str, n_bytes: int, **when: Unpack[_When]) -> PlannedFault:
        r"""Make each call deliver a part of what it was asked for, as read(2) and write(2) may.

        The rest is there for the next call. What the buffers of `open` do about it, they do: they
        ask again. A call that finds no more than ``n_bytes`` anyway is not reached.

        Args:
            operation: ``"read"`` or ``"write"``.
            n_bytes: The most that one call moves. With 0 a read finds the end of the file.
            **when: Which calls: ``nth``, ``times``, ``match``, ``optional``, as said above.

        Example:
            >>> path = shards_dir / "shards.json"
            >>> with FileSystemFaults(shards_dir) as fs, open(path, "rb", 0) as file:
            ...     fault = fs.short("read", 3)
            ...     file.read(100)
            b'[\n '
        """
        one_of("operation", operation, _FEWEST_BYTES)
        integer("n_bytes", n_bytes, at_least=_FEWEST_BYTES[operation])
        return self._plan(FaultKind.SHORT, operation, n_bytes, when)

    def kill(self, operation: str, **when: Unpack[_When]) -> PlannedFault:
        """Make a call end the process by SIGKILL, before anything is done.

        For a child that the test forks: nothing is flushed, no ``finally`` runs. That the call came
        is seen from how the child ended, so the fault is always optional.

        Args:
            operation: One of `OPERATIONS`, or ``"any"``.
            **when: Which call: ``nth``, ``match``, as said above.
        """
        when["optional"] = True
        return self._plan(FaultKind.KILL, operation, 0, when)

    def _plan(self, kind: FaultKind, operation: str, value: float, when: _When) -> PlannedFault:
        refuse_unknown(kind, when, _When.__optional_keys__)
        fault = PlannedFault(kind, operation, value, **when)
        expect("operation", fault.operation, str)
        one_of("operation", fault.operation, (*OPERATIONS, ANY))
        integer("nth", fault.nth, at_least=1)
        if fault.times is not None:
            integer("times", fault.times, at_least=1)
        if fault.match is not None:
            expect("match", fault.match, str)
            if not PurePath(fault.match).parts:
                raise ValueError(f"match: expected a pattern, found {fault.match!r}")
        expect("optional", fault.optional, bool)
        if self._schedule.closed.is_set():
            raise RuntimeError(f"{fault.kind}: the context is left, no more calls will come")
        with LOCK:
            self._schedule.faults.append(fault)
        return fault

    @property
    def calls(self) -> tuple[Call, ...]:
        """All calls so far, in the order in which they began, whatever is planned."""
        return self._schedule.calls()

    @property
    def reached(self) -> bool:
        """Whether every fault that is planned took effect."""
        return all(fault.reached for fault in self._schedule.faults)

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("FileSystemFaults: a context can be entered once; make a new one")
        self._entered = True
        with LOCK:
            try:
                ACTIVE.append(self._schedule)
                if len(ACTIVE) == 1:
                    _install()
            except BaseException:
                self._stop()
                raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        __tracebackhide__ = True  # pytest shows the line that leaves the context
        self._stop()
        self._schedule.closed.set()
        complaint = self._schedule.complaint()
        if complaint is None:
            return
        if isinstance(error, AssertionError):
            error.add_note(complaint)
        elif error is None or isinstance(error, Exception):
            raise AssertionError(complaint) from error

    def _stop(self) -> None:
        """Let calls alone; the last context takes the stand-ins away."""
        with LOCK:
            if self._schedule in ACTIVE:
                ACTIVE.remove(self._schedule)
            if not ACTIVE:
                _installed.close()


MakeShardFaults = Callable[[str | os.PathLike[str]], FileSystemFaults]
"""What the fixture ``make_shard_faults`` gives: call it with the directory."""

_installed = contextlib.ExitStack()

# Another patch may have brought one back after its time: it must not be put before itself.
_ours: weakref.WeakSet[Any] = weakref.WeakSet()


def _install() -> None:
    """Put the stand-ins where code looks for the real functions."""
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
    for what in ("dir_fd", "effective_ids", "fd", "follow_symlinks"):
        functions = getattr(os, f"supports_{what}")
        ours = {replaced[id(real)] for real in functions if id(real) in replaced}
        _installed.callback(functions.difference_update, ours)  # first: an interrupt may come
        functions.update(ours)
    for holder, name, stand_in in of_numpy():
        _put(holder, name, stand_in)


def _put(holder: Any, name: str, stand_in: Any) -> None:
    before = vars(holder)[name]  # a staticmethod as it is, which getattr would unwrap

    def put_back() -> None:
        if vars(holder)[name] is stand_in:  # or else another patch is over it, to be undone
            setattr(holder, name, before)

    _installed.callback(put_back)  # before there is anything to put back: an interrupt may come
    setattr(holder, name, stand_in)
