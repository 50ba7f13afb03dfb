"""Try again: how often and how long, what follows from each failure, and what is said of it."""

import dataclasses
import logging
import math
import random
import time
from collections.abc import Callable, Set
from typing import NamedTuple, TypeVar

from shardproof._base.arguments import count, number
from shardproof._base.messages import printable, shown
from shardproof._base.work import Deadline, go_on
from shardproof.errors import FetchError, FetchTimeoutError, SourceError, SourceErrorKind

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
            drawn at random from 0 up to a bound that doubles each time, from 1 s on.
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


_BELIEVED: Set[SourceErrorKind] = {"unusable", "invalid"}
_BELIEVED_THE_SECOND_TIME: Set[SourceErrorKind] = {"refused", "astray"}
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
    causes: list[str] = []
    is_refused = False
    while True:
        own = deadline.within(limits.timeout)
        try:
            return work(own)
        except SourceError as error:
            causes.append(error.problem)
            what = f"Could not download {shown(goal.label)}"
            if error.kind == "late":
                what = f"Timeout downloading {shown(goal.label)} after {own.spent():.3g}s"
            what = f"{what} (attempt {len(causes)}/{limits.attempts})"
            logger.warning("%s: %s", printable(what), printable(error.problem))
            was_refused, is_refused = is_refused, error.kind in _BELIEVED_THE_SECOND_TIME
            is_believed = error.kind in _BELIEVED or (was_refused and is_refused)
            n = len(causes)
            seconds = _seconds_between(error, n, limits)
            is_late = deadline.end is not None and seconds >= deadline.left(math.inf)
            if is_believed or is_late or n == limits.attempts:
                problem = f"ailed to download {shown(goal.label)} after {n} attempt" + "s" * (n > 1)
                logger.error("F%s: %s", printable(problem), shown(goal.path))
                kind = FetchTimeoutError if error.kind == "late" else FetchError
                raise kind(f"f{problem}", url=goal.url, path=goal.path, causes=causes) from error
        logger.info("Retrying in %.1fs", seconds)
        end = time.monotonic() + seconds
        while not deadline.stop.is_set() and (left := end - time.monotonic()) > 0:
            go_on()
            time.sleep(min(left, _TICK))


def _seconds_between(error: SourceError, n_failed: int, limits: Limits) -> float:
    if error.retry_after is not None:
        return max(0.0, min(error.retry_after, limits.max_backoff))
    return random.uniform(0.0, min(limits.max_backoff, 2.0 ** (n_failed - 1)))  # noqa: S311
