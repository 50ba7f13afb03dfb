"""Plan what goes wrong below one directory, and see what was called."""

import errno as errors
import os
import threading
from pathlib import PurePath
from types import TracebackType
from typing import Self, TypedDict, Unpack

from shardproof.testing.faults.file_system import _patches
from shardproof.testing.faults.file_system._paths import Root
from shardproof.testing.faults.file_system._schedule import ANY, Call, Fault, Kind, Schedule

__all__ = ["OPERATIONS", "Faults", "When", "faults"]

OPERATIONS = (
    "chmod",
    "fsync",
    "link",
    "mkdir",
    "mmap",
    "open",
    "read",
    "readdir",
    "rename",
    "rmdir",
    "scandir",
    "stat",
    "truncate",
    "unlink",
    "write",
)
"""What a fault can be planned for; besides these there is ``"any"``, which means each of them."""

_FEWEST_BYTES = {"read": 0, "write": 1}  # 0 is the end of a file; who writes would write forever


def faults(root: str | os.PathLike[str]) -> "Faults":
    """Return a context manager in which calls about files below a directory do as planned.

    The directory is known by the path given here, made absolute, and by its real one: a call counts
    if its path begins with one of these, or if its descriptor's does. A symbolic link elsewhere
    that leads into the directory is not recognised; one in it that leads out counts as what it is
    called.

    Contexts nest, and may overlap. A call that lies below two roots suffers for both.

    Args:
        root: The directory. It and everything below it suffers, nothing else.

    Raises:
        OSError: It is not there, or is no directory.

    Example:
        >>> import errno
        >>> from shardproof import validate
        >>> with faults(shards_dir) as fs:
        ...     fault = fs.fail("open", errno.EIO, match="acts000001.bin")
        ...     report = validate(shards_dir)
        >>> tuple(finding.path.name for finding in report.findings)
        ('acts000001.bin',)
        >>> fault
        fail('open', EIO, nth=1, match='acts000001.bin')
        >>> fault.reached
        True
    """
    return Faults(root)


class When(TypedDict, total=False):
    """The keywords of all verbs of `Faults`: which of the matching calls suffer.

    Attributes:
        nth: The first that suffers, counted from 1 when the fault is planned. By default 1.
        times: How many suffer, one after the other; None, the default, for all from then on.
        match: A pattern for the file's name, or for as many last parts of its path as the pattern
            has (`pathlib.PurePath.match`). Either path of a rename or a link will do. None, the
            default, for every file.
        optional: Whether it is all right that no such call comes. By default it is not.
    """

    nth: int
    times: int | None
    match: str | None
    optional: bool


class Faults:
    """What is planned for one directory, and which calls came; made by `faults`.

    On leaving the context every fault must have taken effect at least once, unless it was planned
    with ``optional=True``: a test whose fault never bit proves nothing. Otherwise an AssertionError
    says which did not, and what calls there were. An exception that leaves the context becomes its
    cause; to an AssertionError the text is added as a note.

    Where several faults meet at one call, it waits for each that is slow; then it dies; or it
    raises the error that was planned first; or it moves as few bytes as the shortest allows.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._schedule = Schedule(Root(root))
        self._entered = False

    def fail(self, operation: str, errno: int, **when: Unpack[When]) -> Fault:
        """Make calls raise the OSError that the real one raises for an error; nothing is done.

        Args:
            operation: One of `OPERATIONS`, or ``"any"``.
            errno: A number of the module `errno`. EINTR reaches the code under test as an
                InterruptedError, which in reality Python keeps from it (PEP 475). The buffers of
                `open` repeat such a call, so it needs a ``times``.
            **when: Which calls: ``nth``, ``times``, ``match``, ``optional``; see `When`.

        Raises:
            TypeError: An argument of another type.
            ValueError: An operation or a number that there is not.

        Example:
            >>> import errno
            >>> with faults(shards_dir) as fs:
            ...     stale = fs.fail("open", errno.ESTALE, times=1)
            ...     open(shards_dir / "shards.json")
            Traceback (most recent call last):
            OSError: [Errno 116] Stale file handle: ...
        """
        _refuse_other_than_int("errno", errno)
        if errno not in errors.errorcode:
            raise ValueError(f"errno: expected a number of the module errno, found {errno}")
        if errno == errors.EINTR and when.get("times") is None:
            raise ValueError("times: expected a number for EINTR, which would be repeated forever")
        return self._plan(Kind.FAIL, operation, errno, **when)

    def slow(self, operation: str, seconds: float, **when: Unpack[When]) -> Fault:
        """Make calls wait before they are made; leaving the context ends all waits.

        Args:
            operation: One of `OPERATIONS`, or ``"any"``.
            seconds: How long one call waits.
            **when: Which calls: ``nth``, ``times``, ``match``, ``optional``; see `When`.

        Raises:
            TypeError: An argument of another type.
            ValueError: An operation or a number that there is not.

        Example:
            >>> from shardproof import validate
            >>> with faults(shards_dir) as fs:
            ...     fault = fs.slow("stat", 0.001, match="acts*.bin")
            ...     report = validate(shards_dir)
            >>> report.ok, fault.reached
            (True, True)
        """
        if type(seconds) not in {int, float}:
            raise TypeError(f"seconds: expected int or float, found {seconds!r}")
        if not 0 <= seconds <= threading.TIMEOUT_MAX:
            raise ValueError(f"seconds: expected 0 to {threading.TIMEOUT_MAX:.0f}, found {seconds}")
        return self._plan(Kind.SLOW, operation, seconds, **when)

    def short(self, operation: str, n_bytes: int, **when: Unpack[When]) -> Fault:
        r"""Make each call deliver a part of what it was asked for, as read(2) and write(2) may.

        The rest is there for the next call. What the buffers of `open` do about it, they do: they
        ask again. A call that finds no more than ``n_bytes`` anyway is not reached.

        Args:
            operation: ``"read"`` or ``"write"``.
            n_bytes: The most that one call moves. With 0 a read finds the end of the file.
            **when: Which calls: ``nth``, ``times``, ``match``, ``optional``; see `When`.

        Raises:
            TypeError: An argument of another type.
            ValueError: An operation that moves no bytes, or a number that there is not.

        Example:
            >>> with faults(shards_dir) as fs, open(shards_dir / "shards.json", "rb", 0) as file:
            ...     fault = fs.short("read", 3)
            ...     file.read(100)
            b'[\n '
        """
        if operation not in _FEWEST_BYTES:
            raise ValueError(f"operation: expected 'read' or 'write', found {operation!r}")
        _refuse_count("n_bytes", n_bytes, at_least=_FEWEST_BYTES[operation])
        return self._plan(Kind.SHORT, operation, n_bytes, **when)

    def kill(self, operation: str, **when: Unpack[When]) -> Fault:
        """Make a call end the process by SIGKILL, before anything is done.

        For a child that the test forks: nothing is flushed, no ``finally`` runs. That the call came
        is seen from how the child ended, so the fault is always optional.

        Args:
            operation: One of `OPERATIONS`, or ``"any"``.
            **when: Which call: ``nth``, ``match``; see `When`.

        Raises:
            TypeError: An argument of another type.
            ValueError: An operation or a number that there is not.

        Example:
            ::

                pid = os.fork()
                if pid == 0:
                    with faults(directory) as fs:
                        fs.kill("any", nth=nth)
                        my_writer(directory / "acts000000.bin")
                    os._exit(0)
                killed = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        """
        when["optional"] = True
        return self._plan(Kind.KILL, operation, 0, **when)

    def _plan(
        self,
        kind: Kind,
        operation: str,
        value: float,
        *,
        nth: int = 1,
        times: int | None = None,
        match: str | None = None,
        optional: bool = False,
    ) -> Fault:
        _refuse_operation(operation)
        _refuse_count("nth", nth, at_least=1)
        if times is not None:
            _refuse_count("times", times, at_least=1)
        _refuse_pattern(match)
        if type(optional) is not bool:
            raise TypeError(f"optional: expected bool, found {optional!r}")
        if self._schedule.closed.is_set():
            raise RuntimeError(f"{kind}: the context is left, no more calls will come")
        fault = Fault(
            kind=kind,
            operation=operation,
            value=value,
            nth=nth,
            times=times,
            match=match,
            optional=optional,
        )
        self._schedule.add(fault)
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
            raise RuntimeError("faults: a context can be entered once; make a new one")
        self._entered = True
        _patches.start(self._schedule)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        __tracebackhide__ = True  # pytest shows the line that leaves the context
        _patches.stop(self._schedule)
        self._schedule.closed.set()
        complaint = self._schedule.complaint()
        if complaint is None:
            return
        if isinstance(error, AssertionError):
            error.add_note(complaint)
        elif error is None or isinstance(error, Exception):
            raise AssertionError(complaint) from error


def _refuse_operation(operation: object) -> None:
    if type(operation) is not str:
        raise TypeError(f"operation: expected str, found {operation!r}")
    if operation not in {*OPERATIONS, ANY}:
        known = ", ".join((*OPERATIONS, ANY))
        raise ValueError(f"operation: expected one of {known}, found {operation!r}")


def _refuse_other_than_int(name: str, value: object) -> None:
    if type(value) is not int:
        raise TypeError(f"{name}: expected int, found {value!r}")


def _refuse_count(name: str, value: int, *, at_least: int) -> None:
    _refuse_other_than_int(name, value)
    if value < at_least:
        raise ValueError(f"{name}: expected {at_least} or more, found {value}")


def _refuse_pattern(match: object) -> None:
    if match is None:
        return
    if type(match) is not str:
        raise TypeError(f"match: expected str, found {match!r}")
    if not PurePath(match).parts:
        raise ValueError(f"match: expected a pattern, found {match!r}")
