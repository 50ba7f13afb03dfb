"""Try again: how often and how long, what follows from each failure, and what is said of it."""

import dataclasses
import enum
import logging
import time
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shardproof._base.arguments import count, number
from shardproof._base.messages import printable, shown
from shardproof._base.work import Deadline, Settled, go_on, settle
from shardproof.errors import FetchError, FetchTimeoutError, SourceError, SourceErrorKind

if TYPE_CHECKING:
    import tenacity

logger = logging.getLogger("shardproof.fetching")

Result = TypeVar("Result")

_TICK = 0.1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how often a fetch tries; every wait has an end.

    Attributes:
        attempts: How often a file is tried in all, 1 or more. A refusal (401, 403, 404, ...) is
            taken for a mistake of the server once, then believed.
        timeout: Seconds for one attempt.
        min_timeout: Seconds that a `ShardPrefetcher` gives an attempt at least. Once it knows how
            fast shards come, it gives each four times as long as that, between these two bounds.
        deadline: Seconds for all of them and the waits between; None for no more than those add
            up to.
        stall_timeout: Seconds without progress after which an attempt ends.
        min_speed: Bytes a second, on average over ``stall_timeout``, below which there is no
            progress. One byte a second is a stall.
        max_backoff: Most seconds between two attempts, whatever ``Retry-After`` says. The wait is
            drawn at random from 0 up to a bound that doubles each time, from 1 s on: full jitter,
            so that jobs that failed together don't come back together.
        connections: Most connections for one large file, where the source gives ranges. Another
            one than the first is opened only if that brings less than 200 MB/s.
        max_unsized_bytes: Most bytes of a file whose size nobody states, neither the caller nor the
            source. What has a size is taken up to that, and one byte more is an error.

    Raises:
        TypeError: A number that is none.
        ValueError: A number out of range.

    Example:
        >>> Limits(timeout=60, stall_timeout=10).attempts
        3
    """

    attempts: int = 3
    timeout: float = 600.0
    min_timeout: float = 60.0
    deadline: float | None = None
    stall_timeout: float = 30.0
    min_speed: float = 1024.0
    max_backoff: float = 60.0
    connections: int = 4
    max_unsized_bytes: int = 2**30

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if type(field.default) is int:
                value = count(name, value, 1, 2**63 if name == "max_unsized_bytes" else 1000)
            elif value is not None or name != "deadline":
                value = number(name, value, 0.0 if name in {"min_speed", "max_backoff"} else 1e-3)
            object.__setattr__(self, name, value)


class NextStep(enum.Enum):
    """What a fetch does after a failed attempt.

    `DISTRUSTED` says whether it begins again from the first byte: each of these steps is taken with
    bytes that may be right, and with bytes that may not.
    """

    RETRY = "ask again"
    RETRY_ONCE = "ask once more: what was said is most likely meant"
    GIVE_UP = "ask no more"


NEXT_STEPS: Mapping[SourceErrorKind, NextStep] = {
    "broken": NextStep.RETRY,
    "late": NextStep.RETRY,
    "refused": NextStep.RETRY_ONCE,
    "astray": NextStep.RETRY_ONCE,
    "other-bytes": NextStep.RETRY,
    "no-parts": NextStep.RETRY,
    "unusable": NextStep.GIVE_UP,
    "invalid": NextStep.GIVE_UP,
}
"""What follows from what went wrong."""

DISTRUSTED: Set[SourceErrorKind] = {"astray", "other-bytes", "no-parts", "invalid"}
"""After these no byte that came is believed: a file is begun again, and nothing of it is kept."""


class Goal(NamedTuple):
    """What is to be fetched, called ``label`` in logs, from ``url`` to ``path``."""

    label: str
    url: str
    path: str


def retry(
    work: Callable[[Deadline], Result], goal: Goal, limits: Limits, deadline: Deadline
) -> Result:
    """Return what an attempt returns, given its own deadline; try again where that may help."""
    log = _AttemptLog(goal, limits.attempts, deadline)

    def once() -> Result:
        log.current = deadline.within(limits.timeout)
        return work(log.current)

    # Most attempts succeed at once, and the library takes a tenth of the time of a small file. So
    # it is told of the first attempt only if that has failed.
    first: Settled[Result] | None = settle(once)
    if first is not None and first.error is None:
        return first.get()
    try:
        for attempt in _attempts(log, limits, deadline):
            with attempt:
                outcome, first = first, None
                return once() if outcome is None else outcome.get()
        raise AssertionError("a retry ends by a return or an error")
    except SourceError as error:
        raise log.failure(error) from error


def _attempts(log: "_AttemptLog", limits: Limits, deadline: Deadline) -> "tenacity.Retrying":
    """Return the attempts to loop over; each takes in the error that ends it."""
    import tenacity  # noqa: PLC0415 - only what fetches needs it

    stop: Any = tenacity.stop_after_attempt(limits.attempts)
    if deadline.end is not None:
        stop |= tenacity.stop_before_delay(deadline.left(1e9))
    jitter = tenacity.wait_random_exponential(multiplier=1, max=limits.max_backoff)

    def wait(state: tenacity.RetryCallState) -> float:
        error = _error_of(state)
        if error is None or error.retry_after is None:
            return jitter(state)
        return max(0.0, min(error.retry_after, limits.max_backoff))

    def sleep(seconds: float) -> None:
        # In small steps: `Event.wait` would not notice an interrupt that comes at a bad moment.
        end = time.monotonic() + seconds
        while not deadline.stop.is_set() and (left := end - time.monotonic()) > 0:
            go_on()
            time.sleep(min(left, _TICK))

    return tenacity.Retrying(
        retry=lambda state: log.allows_another(_error_of(state)),
        stop=stop,
        wait=wait,
        sleep=sleep,
        after=lambda state: log.add(_error_of(state)),
        before_sleep=lambda state: logger.info("Retrying in %.1fs", state.upcoming_sleep),
        reraise=True,
    )


def _error_of(state: "tenacity.RetryCallState") -> SourceError | None:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, SourceError) else None


class _AttemptLog:
    """What ended each attempt, and so whether there is another one; ``current`` is its deadline."""

    def __init__(self, goal: Goal, n_attempts: int, deadline: Deadline) -> None:
        self._goal, self._n_attempts = goal, n_attempts
        self._causes: list[str] = []
        self._last: SourceError | None = None
        self.current = deadline

    def allows_another(self, error: SourceError | None) -> bool:
        """Whether another attempt may help after this error."""
        if error is None:
            return False
        step, before = NEXT_STEPS[error.kind], self._last and NEXT_STEPS[self._last.kind]
        is_believed = step is before is NextStep.RETRY_ONCE
        return step is not NextStep.GIVE_UP and not is_believed

    def add(self, error: SourceError | None) -> None:
        """Take in why an attempt failed, and say so."""
        if error is None:
            return
        self._last = error
        self._causes.append(error.problem)
        which = f"(attempt {len(self._causes)}/{self._n_attempts})"
        what = f"Could not download {shown(self._goal.label)}"
        if error.kind == "late":
            label, seconds = shown(self._goal.label), self.current.spent()
            what = f"Timeout downloading {label} after {seconds:.3g}s"
        logger.warning("%s %s: %s", printable(what), printable(which), printable(error.problem))

    def failure(self, error: SourceError) -> FetchError:
        """Return the error that all attempts come to."""
        if error is not self._last:  # tenacity tells of those only that it tries again
            self.add(error)
        n = len(self._causes)
        problem = f"ailed to download {shown(self._goal.label)} after {n} attempt" + "s" * (n > 1)
        logger.error("F%s: %s", printable(problem), shown(self._goal.path))
        kind = FetchTimeoutError if error.kind == "late" else FetchError
        return kind(f"f{problem}", url=self._goal.url, path=self._goal.path, causes=self._causes)
