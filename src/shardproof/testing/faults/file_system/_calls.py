"""The one gate through which every intercepted call goes."""

import os
import signal
from collections.abc import Callable, Sequence
from typing import TypeVar

from shardproof.testing.faults.file_system._paths import absolute
from shardproof.testing.faults.file_system._schedule import Kind, Outcome, Schedule, Turn

__all__ = ["Part", "join", "leave", "remember", "through", "watched"]

T = TypeVar("T")

Part = tuple[str, Sequence[str | None]]
"""An operation and the absolute paths it is about; a call that copies has two."""

_schedules: tuple[Schedule, ...] = ()


def join(schedule: Schedule) -> bool:
    """Let a schedule take part in all calls from now on; return whether it is the only one.

    Whoever calls this, or `leave`, holds `LOCK`.
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
    """Whether a path or a descriptor lies below any root."""
    schedules = _schedules
    path = absolute(place, dir_fd) if schedules else None
    return path is not None and any(schedule.root.name(path) for schedule in schedules)


def remember(path: str | None, descriptor: int) -> None:
    """Keep in mind by which name below a root a file was opened."""
    for schedule in _schedules:
        schedule.root.remember(path, descriptor)


def through(
    parts: Sequence[Part],
    run: Callable[[int | None], T],
    *,
    names: Sequence[object] = (),
    size: int | None = None,
    instead: Callable[[], T] | None = None,
) -> T:
    """Make a call, with what is planned for it.

    Args:
        parts: What the call does.
        run: Makes the real call. Its argument is the number of bytes to which it must cut what it
            was asked to move, or None.
        names: The paths that a planned error names, as the real one does.
        size: How many bytes the call was asked to move.
        instead: Called where a planned error is due, for calls that in reality raise none.
    """
    turns = _begin(parts)
    if not turns:
        return run(None)
    try:
        _wait_or_die(turns)
        number = _planned_error(turns)
        if number is None:
            return _run(turns, run, size)
        if instead is None:
            raise _error(number, names)
        return instead()
    finally:
        for turn in turns:
            if turn.outcome is Outcome.RUNNING:
                turn.outcome = Outcome.RAISED


def _begin(parts: Sequence[Part]) -> list[Turn]:
    schedules = _schedules
    begun = (s.begin(operation, paths) for operation, paths in parts for s in schedules)
    return [turn for turn in begun if turn is not None]


def _wait_or_die(turns: Sequence[Turn]) -> None:
    for turn in turns:
        turn.wait()
    if any(turn.planned(Kind.KILL) for turn in turns):
        os.kill(os.getpid(), signal.SIGKILL)


def _planned_error(turns: Sequence[Turn]) -> int | None:
    """The number of the error that was planned first, of the outermost root."""
    failing = [(turn, fault) for turn in turns for fault in turn.planned(Kind.FAIL)]
    for turn, fault in failing:
        fault.reached = True
        turn.outcome = Outcome.FAILED
    return next((int(fault.value) for _, fault in failing), None)


def _error(number: int, names: Sequence[object]) -> OSError:
    """As the real one: of the subclass for the number, with one path, two, or none."""
    message = os.strerror(number)
    if len(names) > 1:
        return OSError(number, message, names[0], None, names[1])
    return OSError(number, message, *names)


def _run(turns: Sequence[Turn], run: Callable[[int | None], T], size: int | None) -> T:
    cuts = [(turn, fault) for turn in turns for fault in turn.planned(Kind.SHORT)]
    limit = min((int(fault.value) for _, fault in cuts), default=None)
    if limit is not None and (size is None or size <= limit):
        limit = None
    result = run(limit)
    for turn in turns:
        turn.outcome = Outcome.SLOW if turn.planned(Kind.SLOW) else Outcome.OK
    if limit is not None and _moved(result) == limit:
        for turn, fault in cuts:
            turn.outcome = Outcome.SHORT
            fault.reached = True
    return result


def _moved(result: object) -> object:
    return len(result) if isinstance(result, bytes) else result
