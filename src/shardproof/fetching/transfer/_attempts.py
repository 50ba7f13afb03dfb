"""Try again: how often, after how long, and what is said of it."""

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from shardproof._base.messages import printable, shown, told
from shardproof.errors import FetchError, FetchTimeoutError, SourceError
from shardproof.fetching.transfer._clock import Clock
from shardproof.fetching.transfer._limits import Limits

if TYPE_CHECKING:
    import tenacity

__all__ = ["Goal", "try_again"]

logger = logging.getLogger("shardproof.fetching")

Result = TypeVar("Result")

_TICK = 0.1


class Goal(NamedTuple):
    """What is to be done: ``label`` in logs, from ``url`` to ``path``."""

    label: str
    url: str
    path: str


def try_again(work: Callable[[Clock], Result], goal: Goal, limits: Limits, clock: Clock) -> Result:
    """Return what an attempt returns; try again where that may help.

    Args:
        work: One attempt; it is given the time it has.
        goal: What for.
        limits: How often and how long.
        clock: The time for all attempts.

    Raises:
        FetchError: No attempt came to its end; the last one's `SourceError` is the cause.
        StoppedError: The clock was stopped.
    """
    log = _Log(goal, limits)
    try:
        for attempt in _retrying(log, limits, clock):
            with attempt:
                log.clock = clock.within(limits.download_timeout)
                return work(log.clock)
        raise AssertionError("a retry ends by a return or an error")
    except SourceError as error:
        raise log.failure(error) from error


def _retrying(log: "_Log", limits: Limits, clock: Clock) -> "tenacity.Retrying":
    import tenacity  # noqa: PLC0415 - only what fetches needs it

    stop = tenacity.stop_after_attempt(limits.max_download_retries)
    jitter = tenacity.wait_random_exponential(multiplier=1, max=limits.max_wait)

    def wait(state: "tenacity.RetryCallState") -> float:
        error = _error(state)
        if error.retry_after is None:
            return jitter(state)
        return max(0.0, min(error.retry_after, limits.max_wait))

    def is_worth_it(state: "tenacity.RetryCallState") -> bool:
        if state.outcome is None or not isinstance(state.outcome.exception(), SourceError):
            return False
        again = _error(state).again
        return again == "yes" or (again == "once" and not log.is_refused)

    return tenacity.Retrying(
        retry=is_worth_it,
        stop=stop if clock.end is None else stop | tenacity.stop_before_delay(clock.left(1e9)),
        wait=wait,
        sleep=lambda seconds: _sleep(seconds, clock),
        after=lambda state: log.failed(_error(state)),
        before_sleep=lambda state: logger.info("Retrying in %.1fs", state.upcoming_sleep),
        reraise=True,
    )


def _sleep(seconds: float, clock: Clock) -> None:
    """Wait, or until the clock is stopped; an interrupt at any moment is one (`Event` has gaps)."""
    end = time.monotonic() + seconds
    while not clock.stop.is_set() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _TICK))


def _error(state: "tenacity.RetryCallState") -> SourceError:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, SourceError) else SourceError(told(error) if error else "")


class _Log:
    """What ended each attempt."""

    def __init__(self, goal: Goal, limits: Limits) -> None:
        self._goal, self._limits = goal, limits
        self._causes: list[str] = []
        self._last: SourceError | None = None
        self.is_refused = False
        self.clock: Clock

    def failed(self, error: SourceError) -> None:
        """Say why the attempt failed."""
        self._last = error
        self._causes.append(error.problem)
        self.is_refused = error.again == "once"
        which = f"(attempt {len(self._causes)}/{self._limits.max_download_retries})"
        what = f"Could not download {shown(self._goal.label)}"
        if error.late:
            what = f"Timeout downloading {shown(self._goal.label)} after {self.clock.spent():.3g}s"
        logger.warning("%s %s: %s", printable(what), printable(which), printable(error.problem))

    def failure(self, error: SourceError) -> FetchError:
        """Return what all of it comes to."""
        if error is not self._last:  # tenacity tells of those only that it tries again
            self.failed(error)
        n = len(self._causes)
        problem = f"ailed to download {shown(self._goal.label)} after {n} attempt" + "s" * (n > 1)
        logger.error("F%s: %s", printable(problem), shown(self._goal.path))
        kind = FetchTimeoutError if error.late else FetchError
        return kind(f"f{problem}", url=self._goal.url, path=self._goal.path, causes=self._causes)
