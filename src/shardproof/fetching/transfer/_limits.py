"""How long and how often a fetch tries."""

import dataclasses

from shardproof._base.arguments import count, number

__all__ = ["Limits"]


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
            so that those who failed together don't come back together.
        connections: Most connections for one large file, where the source gives ranges. Another
            one than the first is opened only if that brings less than 200 MB/s.

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

    def __post_init__(self) -> None:
        accepted: dict[str, float] = {
            name: count(name, getattr(self, name), 1, 1000) for name in _COUNTS
        }
        accepted |= {name: number(name, getattr(self, name), _LEAST_TIME) for name in _TIMES}
        accepted |= {name: number(name, getattr(self, name)) for name in _NUMBERS}
        if self.deadline is not None:
            accepted["deadline"] = number("deadline", self.deadline, _LEAST_TIME)
        for name, value in accepted.items():
            object.__setattr__(self, name, value)


_LEAST_TIME = 1e-3
_COUNTS = ("attempts", "connections")
_TIMES = ("timeout", "min_timeout", "stall_timeout")
_NUMBERS = ("min_speed", "max_backoff")
