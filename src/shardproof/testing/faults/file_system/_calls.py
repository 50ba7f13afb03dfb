"""The one gate through which every intercepted call goes."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardproof.testing.faults.file_system._paths import absolute
from shardproof.testing.faults.file_system._schedule import FaultKind, Outcome, Schedule, Turn

__all__ = ["join", "leave", "remember", "through", "watched"]

T = TypeVar("T")

_schedules: tuple[Schedule, ...] = ()


def join(schedule: Schedule) -> bool:
    """Let a schedule take part in all calls from now on; return whether it is the only one.

    The caller of this, and of `leave`, must hold `LOCK`.
    """
    global _schedules  # noqa: PLW0603 - replaced as a whole, so that readers need no lock
    _schedules = (*_schedules, schedule)
    return len(_schedules) == 1


def leave(schedule: Schedule) -> bool:
    """Undo `join`; return whether no schedule is left."""
    global _schedules  # noqa: PLW0603 - as above
    _schedules = tuple(other for other in _schedules if other is not schedule)
    return not _schedules


def watched(place: object, dir_fd: object = None) -> bool:
    """Return whether a path or a descriptor lies below any root."""
    schedules = _schedules
    path = absolute(place, dir_fd) if schedules else None
    return path is not None and any(schedule.root.name(path) for schedule in schedules)


def remember(path: str | None, descriptor: int) -> None:
    """Keep in mind by which name below a root a file was opened."""
    for schedule in _schedules:
        schedule.root.remember(path, descriptor)


def through(
    parts: Sequence[tuple[str, Sequence[str | None]]],
    run: Callable[[int | None], T],
    *,
    names: Sequence[object] = (),
    size: int | None = None,
    instead: Callable[[], T] | None = None,
) -> T:
    """Make a call, with what is planned for it.

    Args:
        parts: What the call does: each operation, and the absolute paths that it is about. A call
            that copies has two.
        run: Makes the real call. Its argument is the number of bytes to which it must cut what it
            was asked to move, or None.
        names: The paths that a planned error names, as the real one does.
        size: How many bytes the call was asked to move.
        instead: Called where a planned error is due, for calls that in reality raise none.
    """
    schedules = _schedules
    begun = (s.begin(operation, paths) for operation, paths in parts for s in schedules)
    turns = [turn for turn in begun if turn is not None]
    if not turns:
        return run(None)
    try:
        for turn in turns:
            turn.wait()
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
        told = (names[0], None, names[1]) if len(names) > 1 else names
        raise OSError(number, os.strerror(number), *told)
    finally:
        for turn in turns:
            if turn.outcome is Outcome.RUNNING:
                turn.outcome = Outcome.RAISED


def _run(turns: Sequence[Turn], run: Callable[[int | None], T], size: int | None) -> T:
    cuts = [(turn, fault) for turn in turns for fault in turn.planned(FaultKind.SHORT)]
    limit = min((int(fault.value) for _, fault in cuts), default=None)
    if limit is not None and (size is None or size <= limit):
        limit = None
    result = run(limit)
    for turn in turns:
        turn.outcome = Outcome.SLOW if turn.planned(FaultKind.SLOW) else Outcome.OK
    moved = len(result) if isinstance(result, bytes) else result
    if limit is not None and moved == limit:
        for turn, fault in cuts:
            turn.outcome = Outcome.SHORT
            fault.reached = True
    return result
