"""How long and how often a fetch tries."""

import dataclasses
import math

from shardproof._base.arguments import plain_number

__all__ = ["Limits"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how often a fetch tries; every wait has an end.

    Attributes:
        max_download_retries: Attempts in all, 1 or more. A refusal (401, 403, 404, ...) is taken
            for a mistake of the server once, then believed.
        download_timeout: Seconds for one attempt.
        least_timeout: Seconds that a `ShardPrefetcher` gives an attempt at least. Once it knows how
            fast shards come, it gives each four times as long as that, between these two bounds.
        deadline: Seconds for all of them and the waits between; None for no more than those add
            up to.
        stall_after: Seconds without progress after which an attempt ends.
        min_speed: Bytes a second, on average over ``stall_after``, below which there is none. One
            byte a second is a stall.
        max_wait: Most seconds between two attempts, whatever ``Retry-After`` says. The wait is
            drawn at random from 0 up to a bound that doubles each time, from 1 s on: full jitter,
            so that those who failed together don't come back together.
        connections: Most connections for one large file, where the source gives ranges. Another
            one than the first is opened only if that brings less than 200 MB/s.

    Raises:
        TypeError: A number that is none.
        ValueError: A number out of range.

    Example:
        >>> Limits(download_timeout=60, stall_after=10).max_download_retries
        3
    """

    max_download_retries: int = 3
    download_timeout: float = 600.0
    least_timeout: float = 60.0
    deadline: float | None = None
    stall_after: float = 30.0
    min_speed: float = 1024.0
    max_wait: float = 60.0
    connections: int = 4

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, plain_number(getattr(self, field.name)))
        for name in ("max_download_retries", "connections"):
            _refuse_count(name, getattr(self, name))
        for name in ("download_timeout", "least_timeout", "stall_after"):
            _refuse_number(name, getattr(self, name), least=1e-3)
        for name in ("min_speed", "max_wait"):
            _refuse_number(name, getattr(self, name), least=0)
        if self.deadline is not None:
            _refuse_number("deadline", self.deadline, least=1e-3)


def _refuse_count(name: str, value: object) -> None:
    if type(value) is not int:
        raise TypeError(f"{name}: expected an integer, found {type(value).__name__}")
    if not 1 <= value <= 1000:
        raise ValueError(f"{name}: expected 1 to 1000, found {value}")


def _refuse_number(name: str, value: object, *, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected a number, found {type(value).__name__}")
    if not least <= value < math.inf:
        raise ValueError(f"{name}: expected a finite number, {least:g} or more, found {value}")
