"""What prefetching has cost and saved until now, and how fast shards come."""

import dataclasses
import threading
from collections.abc import Callable
from typing import Literal

from shardproof._base.work import apart
from shardproof.fetching.transfer._attempts import Limits

_PATIENCE = 4.0
_WEIGHT = 0.3
_SOON = 0.01  # seconds


@dataclasses.dataclass(frozen=True, slots=True)
class PrefetchEvent:
    """Something that happened to a shard.

    Attributes:
        kind: ``"found"`` whole in the cache, ``"fetched"``, ``"failed"`` in the background or for
            good, ``"opened"`` by the reader, ``"removed"`` from the cache.
        name: The shard's name.
        seconds: How long it took; for ``"opened"``, how long the reader waited.
        n_bytes: How many bytes came.
        problem: What went wrong.
    """

    kind: Literal["found", "fetched", "failed", "opened", "removed"]
    name: str
    seconds: float = 0.0
    n_bytes: int = 0
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchStats:
    """What prefetching has cost and saved until now.

    Attributes:
        n_attempts: How often a download was begun.
        n_failures: Downloads that failed after all their attempts.
        n_retries: Attempts that followed another one at the same shard.
        n_bytes: Bytes that came over the network, those for nothing too.
        seconds_waited: How long the reader has waited for shards.
        n_opened: How many shards the reader has opened.
        n_ready: How many of them were there when it asked.
    """

    n_attempts: int = 0
    n_failures: int = 0
    n_retries: int = 0
    n_bytes: int = 0
    seconds_waited: float = 0.0
    n_opened: int = 0
    n_ready: int = 0

    @property
    def hit_rate(self) -> float:
        """The share of shards that were there when the reader asked; 0 before the first."""
        return self.n_ready / self.n_opened if self.n_opened else 0.0


class PrefetchTally:
    """Adds up what several threads do, and passes events on."""

    def __init__(self, on_event: Callable[[PrefetchEvent], object] | None = None) -> None:
        self._lock = threading.Lock()
        self._speed: float | None = None
        self._seconds: float | None = None
        self.tell = on_event or (lambda _: None)
        self.stats = PrefetchStats()

    def add(self, **more: float) -> None:
        """Add to what `PrefetchStats` has under these names."""
        with self._lock:
            now = {name: getattr(self.stats, name) + value for name, value in more.items()}
            self.stats = dataclasses.replace(self.stats, **now)

    def opened(self, name: str, seconds: float, *, is_ready: bool) -> None:
        """Take in that the reader has a shard, and how long it has waited for it."""
        apart(lambda _: self.add(n_opened=1, n_ready=is_ready, seconds_waited=seconds))
        self.tell(PrefetchEvent("opened", name, seconds))

    def took(self, n_bytes: int, seconds: float) -> None:
        """Take in how long one download took."""
        if n_bytes and seconds > 0:
            with self._lock:
                speed = n_bytes / seconds
                self._speed = (1 - _WEIGHT) * (self._speed or speed) + _WEIGHT * speed
                self._seconds = (1 - _WEIGHT) * (self._seconds or seconds) + _WEIGHT * seconds

    def at_once(self, most: int) -> int:
        """Return how many downloads are of use at once: one, where there is hardly a wait."""
        return 1 if self._seconds is not None and self._seconds < _SOON else most

    def limits_for(self, size: int | None, limits: Limits) -> Limits:
        """Return limits whose time for an attempt suits what was seen until now."""
        if size is None or self._speed is None:
            return limits
        wanted = max(limits.min_timeout, _PATIENCE * size / self._speed)
        return dataclasses.replace(limits, timeout=min(limits.timeout, wanted))
