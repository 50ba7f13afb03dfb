"""Try again: what follows from each failure, how often, after how long, and what is said of it."""

import enum
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shardproof._base.deadline import Deadline
from shardproof._base.messages import printable, shown
from shardproof._base.work import go_on
from shardproof.errors import FetchError, FetchTimeoutError, SourceError, SourceErrorKind
from shardproof.fetching.transfer._limits import Limits

if TYPE_CHECKING:
    import tenacity

__all__ = ["NEXT_STEPS", "Goal", "NextStep", "retry"]

logger = logging.getLogger("shardproof.fetching")

Result = TypeVar("Result")

_TICK = 0.1


class NextStep(enum.Enum):
    """What a fetch does after a failed attempt."""

    RETRY = "ask again, and go on from the bytes that came"
    RETRY_ONCE = "ask once more, and go on: what was said is most likely meant"
    RESTART = "ask again, from the first byte"
    RESTART_ONCE = "ask once more, from the first byte"
    RESTART_WHOLE = "ask again, for the whole file over one connection"
    GIVE_UP = "leave the bytes that came to a later fetch"
    DISCARD = "give up, and believe no byte that came"

    @property
    def keeps_bytes(self) -> bool:
        """Whether the bytes that came may be right."""
        return self in {NextStep.RETRY, NextStep.RETRY_ONCE, NextStep.GIVE_UP}

    @property
    def is_last_chance(self) -> bool:
        """Whether the same answer is believed when it comes twice."""
        return self in {NextStep.RETRY_ONCE, NextStep.RESTART_ONCE}

    @property
    def is_end(self) -> bool:
        """Whether nothing is tried again."""
        return self in {NextStep.GIVE_UP, NextStep.DISCARD}


NEXT_STEPS: Mapping[SourceErrorKind, NextStep] = {
    "broken": NextStep.RETRY,
    "late": NextStep.RETRY,
    "refused": NextStep.RETRY_ONCE,
    "astray": NextStep.RESTART_ONCE,
    "other-bytes": NextStep.RESTART,
    "no-parts": NextStep.RESTART_WHOLE,
    "unusable": NextStep.GIVE_UP,
    "invalid": NextStep.DISCARD,
}
"""What follows from what went wrong."""


class Goal(NamedTuple):
    """What is to be done: ``label`` in logs, from ``url`` to ``path``."""

    label: str
    url: str
    path: str


def retry(
    work: Callable[[Deadline], Result], goal: Goal, limits: Limits, deadline: Deadline
) -> Result:
    """Return what an attempt returns; make another one where that may help.

    Args:
        work: One attempt; it is given its own deadline.
        goal: What it is for, for messages.
        limits: How many attempts there are, and how long each may take.
        deadline: Of all attempts together.

    Raises:
        FetchError: No attempt succeeded; the last one's `SourceError` is the cause.
        Cancelled: The work is not wanted any more.
    """
    log = _AttemptLog(goal, limits, deadline)
    try:
        for attempt in log.attempts():
            with attempt:
                log.current = deadline.within(limits.timeout)
                return work(log.current)
        raise AssertionError("a retry ends by a return or an error")
    except SourceError as error:
        raise log.failure(error) from error


class _AttemptLog:
    """What ended each attempt, and so whether and when there is another one.

    Attributes:
        current: The deadline of the attempt that is under way.
    """

    def __init__(self, goal: Goal, limits: Limits, deadline: Deadline) -> None:
        self._goal, self._limits, self._deadline = goal, limits, deadline
        self._causes: list[str] = []
        self._last: SourceError | None = None
        self._is_last_chance = False
        self.current = deadline

    def attempts(self) -> "tenacity.Retrying":
        """Return the attempts to loop over; each takes in the error that ends it."""
        import tenacity  # noqa: PLC0415 - only what fetches needs it

        stop: Any = tenacity.stop_after_attempt(self._limits.attempts)
        if self._deadline.end is not None:
            stop |= tenacity.stop_before_delay(self._deadline.left(1e9))
        jitter = tenacity.wait_random_exponential(multiplier=1, max=self._limits.max_backoff)

        def wait(state: "tenacity.RetryCallState") -> float:
            error = _error_of(state)
            if not isinstance(error, SourceError) or error.retry_after is None:
                return jitter(state)
            return max(0.0, min(error.retry_after, self._limits.max_backoff))

        return tenacity.Retrying(
            retry=self._is_worth_it,
            stop=stop,
            wait=wait,
            sleep=self._sleep,
            after=self._failed,
            before_sleep=lambda state: logger.info("Retrying in %.1fs", state.upcoming_sleep),
            reraise=True,
        )

    def _is_worth_it(self, state: "tenacity.RetryCallState") -> bool:
        error = _error_of(state)
        if not isinstance(error, SourceError):
            return False
        step = NEXT_STEPS[error.kind]
        return not step.is_end and not (step.is_last_chance and self._is_last_chance)

    def _sleep(self, seconds: float) -> None:
        """Wait, or until it is cancelled; an interrupt at any moment is one (`Event` has gaps)."""
        end = time.monotonic() + seconds
        while not self._deadline.stop.is_set() and (left := end - time.monotonic()) > 0:
            go_on()
            time.sleep(min(left, _TICK))

    def _failed(self, state: "tenacity.RetryCallState") -> None:
        error = _error_of(state)
        if isinstance(error, SourceError):
            self._add(error)

    def _add(self, error: SourceError) -> None:
        """Say why an attempt failed."""
        self._last = error
        self._causes.append(error.problem)
        self._is_last_chance = NEXT_STEPS[error.kind].is_last_chance
        which = f"(attempt {len(self._causes)}/{self._limits.attempts})"
        what = f"Could not download {shown(self._goal.label)}"
        if error.kind == "late":
            label, seconds = shown(self._goal.label), self.current.spent()
            what = f"Timeout downloading {label} after {seconds:.3g}s"
        logger.warning("%s %s: %s", printable(what), printable(which), printable(error.problem))

    def failure(self, error: SourceError) -> FetchError:
        """Return the error that all attempts come to."""
        if error is not self._last:  # tenacity tells of those only that it tries again
            self._add(error)
        n = len(self._causes)
        problem = f"ailed to download {shown(self._goal.label)} after {n} attempt" + "s" * (n > 1)
        logger.error("F%s: %s", printable(problem), shown(self._goal.path))
        kind = FetchTimeoutError if error.kind == "late" else FetchError
        return kind(f"f{problem}", url=self._goal.url, path=self._goal.path, causes=self._causes)


def _error_of(state: "tenacity.RetryCallState") -> BaseException | None:
    return state.outcome.exception() if state.outcome else None
