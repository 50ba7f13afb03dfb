"""Which file a call means, what it suffers, and the one gate through which all calls go."""

import contextlib
import dataclasses
import enum
import errno
import fcntl
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ANY = "any"

# Never held while a file is touched or a thread sleeps. The same thread may come back: a signal
# handler or a finalizer that writes. And a fork must not leave it locked in the child.
LOCK = threading.RLock()
os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


# What is asked here is asked on behalf of intercepted calls, and must not be one itself.
_close, _lstat, _open, _readlink = os.close, os.lstat, os.open, os.readlink
_GET_PATH = getattr(fcntl, "F_GETPATH", None)  # of macOS, which has no /proc

_DELETED = " (deleted)"  # what Linux appends to the path of a file that has lost its name


def absolute(place: object, dir_fd: object = None) -> str | None:
    """Return the absolute path that a path, a descriptor or an object with ``fileno()`` is of."""
    # What is wrong with the arguments is for the real call to say.
    with contextlib.suppress(OSError, TypeError, ValueError):
        if isinstance(place, int):
            return _path_of_descriptor(place)
        if hasattr(place, "fileno"):
            return _path_of_descriptor(place.fileno())
        path = os.fsdecode(place)  # type: ignore[arg-type] # a TypeError if it is no path
        base = None if dir_fd is None else _path_of_descriptor(dir_fd)
        return os.path.abspath(path if base is None else os.path.join(base, path))
    return None


def _path_of_descriptor(descriptor: object) -> str:
    if _GET_PATH is not None:
        found: bytes = fcntl.fcntl(descriptor, _GET_PATH, bytes(1024))  # type: ignore[call-overload]
        return os.fsdecode(found.rstrip(b"\0"))
    path = _readlink(f"/proc/self/fd/{descriptor}")
    if path.endswith(_DELETED):
        try:
            _lstat(path)  # a file may be called so
        except FileNotFoundError:
            return path.removesuffix(_DELETED)
    return path


class Root:
    """A directory, by its real path and by the path that was given, with which names begin."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(path)
        descriptor = _open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            real = absolute(descriptor) or self.path
        finally:
            _close(descriptor)
        self._bases = (self.path.rstrip("/"), real.rstrip("/"))
        self._links: dict[str, str] = {}

    def name(self, path: str) -> str | None:
        """Return the path as seen below the root; None for one that lies elsewhere."""
        for base in self._bases:
            if f"{path}/".startswith(f"{base}/"):
                return self._bases[0] + path[len(base) :]
        return self._links.get(path)

    def remember(self, path: str | None, descriptor: int) -> None:
        """Keep the name of a file that was opened below the root and lies elsewhere."""
        name = path and self.name(path)
        real = absolute(descriptor)
        if name and real:
            self._links[real] = name


class Outcome(enum.StrEnum):
    """What became of a call."""

    RUNNING = "running"  # it has not returned yet
    OK = "ok"  # the real call returned
    RAISED = "raised"  # it raised an error that was not planned for this root
    FAILED = "failed"  # a planned error was raised; there was no real call
    SHORT = "short"  # the real call was made to move fewer bytes than it was asked to
    SLOW = "slow"  # the real call returned, after a planned wait


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """One call below the root.

    Attributes:
        operation: One of `OPERATIONS`.
        path: Absolute.
        outcome: What became of it.
        target: The second path, where there are two: rename, link.
    """

    operation: str
    path: Path
    outcome: Outcome
    target: Path | None = None


class FaultKind(enum.StrEnum):
    """What a planned fault does; also the name of the method that plans it."""

    FAIL = "fail"
    SLOW = "slow"
    SHORT = "short"
    KILL = "kill"


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class PlannedFault:
    """One planned fault, as `FileSystemFaults.fail` and the other verbs return it.

    Its repr is the call that planned it.

    Attributes:
        reached: Whether it took effect, at least once.
        n_calls: How many calls came, since it was planned, that it could have been for.
    """

    kind: FaultKind
    operation: str
    value: float
    _: dataclasses.KW_ONLY
    nth: int = 1
    times: int | None = None
    match: str | None = None
    optional: bool = False
    reached: bool = dataclasses.field(default=False, init=False)
    n_calls: int = dataclasses.field(default=0, init=False)

    def __repr__(self) -> str:
        said = [repr(self.operation)]
        if self.kind is not FaultKind.KILL:
            is_error = self.kind is FaultKind.FAIL
            said.append(errno.errorcode[int(self.value)] if is_error else str(self.value))
        when = {"nth": self.nth, "times": self.times, "match": self.match}
        said += [f"{name}={value!r}" for name, value in when.items() if value is not None]
        return f"{self.kind}({', '.join(said)})"

    def meets(self, operation: str, paths: Sequence[Path]) -> bool:
        """Count a call if it is one of those meant; return whether this very one suffers."""
        if self.operation not in {ANY, operation}:
            return False
        if self.match is not None and not any(path.match(self.match) for path in paths):
            return False
        self.n_calls += 1
        late = self.n_calls - self.nth
        return late >= 0 and (self.times is None or late < self.times)


@dataclasses.dataclass(slots=True, kw_only=True, eq=False)
class _Turn:
    """One call while it is made, in the eyes of one schedule."""

    operation: str
    paths: Sequence[Path]
    faults: Sequence[PlannedFault]  # what it suffers
    closed: threading.Event  # set when the schedule ends, and with it every wait
    outcome: Outcome = Outcome.RUNNING

    def planned(self, kind: FaultKind) -> list[PlannedFault]:
        return [fault for fault in self.faults if fault.kind is kind]


class Schedule:
    """The faults planned for one root, and the calls made there."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.faults: list[PlannedFault] = []
        self.closed = threading.Event()  # set when the context is left
        self._turns: list[_Turn] = []

    def begin(self, operation: str, paths: Sequence[str | None]) -> _Turn | None:
        """Record a call and count it; None if no path of it lies below the root."""
        names = [path and self.root.name(path) for path in paths]
        inside = [Path(name) for name in names if name]
        if not inside:
            return None
        shown = [Path(name or path or "") for name, path in zip(names, paths, strict=True)]
        with LOCK:
            faults = [fault for fault in self.faults if fault.meets(operation, inside)]
            turn = _Turn(operation=operation, paths=shown, faults=faults, closed=self.closed)
            self._turns.append(turn)
        return turn

    def calls(self) -> tuple[Call, ...]:
        with LOCK:
            return tuple(
                Call(turn.operation, turn.paths[0], turn.outcome, *turn.paths[1:])
                for turn in self._turns
            )

    def complaint(self) -> str | None:
        """Return which faults never took effect though they had to."""
        unreached = [fault for fault in self.faults if not (fault.reached or fault.optional)]
        if not unreached:
            return None
        made = Counter(call.operation for call in self.calls())
        seen = ", ".join(f"{made[name]} {name}" for name in sorted(made)) or "none"
        planned = "\n".join(f"  - {fault} (such calls: {fault.n_calls})" for fault in unreached)
        return (
            f"Planned for '{self.root.path}' and never reached:\n{planned}\n"
            f"Calls seen there: {seen}.\n"
            "A test whose fault never bit proves nothing. Give the code under test this root, and "
            "a file large enough; for a call that need not come, say optional=True."
        )


ACTIVE: list[Schedule] = []  # through which calls are made; changed under `LOCK`, read by copies


def watched(place: object) -> bool:
    """Return whether a path or a descriptor lies below any root."""
    path = absolute(place) if ACTIVE else None
    return path is not None and any(schedule.root.name(path) for schedule in tuple(ACTIVE))


def remember(path: str | None, descriptor: int) -> None:
    """Note by which name below a root a file was opened."""
    for schedule in tuple(ACTIVE):
        schedule.root.remember(path, descriptor)


def through(
    parts: Sequence[tuple[str, Sequence[str | None]]],
    run: Callable[[int | None], T],
    *,
    names: Sequence[object] = (),
    size: int | None = None,
    instead: Callable[[], T] | None = None,
) -> T:
    """Make a call as planned: `run` takes what it is cut to, `instead` stands in for an error."""
    schedules = tuple(ACTIVE)
    begun = (s.begin(operation, paths) for operation, paths in parts for s in schedules)
    turns = [turn for turn in begun if turn is not None]
    if not turns:
        return run(None)
    try:
        for turn in turns:
            for fault in turn.planned(FaultKind.SLOW):
                fault.reached = True
                turn.closed.wait(fault.value)
        if any(turn.planned(FaultKind.KILL) for turn in turns):
            os.kill(os.getpid(), signal.SIGKILL)
        failing = [(turn, fault) for turn in turns for fault in turn.planned(FaultKind.FAIL)]
        for turn, fault in failing:
            fault.reached = True
            turn.outcome = Outcome.FAILED
        if not failing:
            return _run(turns, run, size)
        if instead is not None:
            return instead()
        number = int(failing[0][1].value)  # planned first, of the outermost root
        # As the real one: of the subclass for the number, with one path, two, or none.
        named = (names[0], None, names[1]) if len(names) > 1 else names
        raise OSError(number, os.strerror(number), *named)
    finally:
        for turn in turns:
            if turn.outcome is Outcome.RUNNING:
                turn.outcome = Outcome.RAISED


def _run(turns: Sequence[_Turn], run: Callable[[int | None], T], size: int | None) -> T:
    cuts = [(turn, fault) for turn in turns for fault in turn.planned(FaultKind.SHORT)]
    limit = min((int(fault.value) for _, fault in cuts), default=None)
    if limit is not None and (size is None or size <= limit):
        limit = None  # the call delivers no more anyway, so no fault takes effect
    result = run(limit)
    for turn in turns:
        turn.outcome = Outcome.SLOW if turn.planned(FaultKind.SLOW) else Outcome.OK
    moved = len(result) if isinstance(result, bytes) else result
    if limit is not None and moved == limit:
        for turn, fault in cuts:
            turn.outcome = Outcome.SHORT
            fault.reached = True
    return result
