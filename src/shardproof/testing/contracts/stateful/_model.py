"""What a plan directory and its workers must look like, kept in step with the real ones."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

__all__ = ["ModelClock", "ModelPlan", "ModelWork", "ModelWorker"]


@dataclasses.dataclass(eq=False)
class ModelClock:
    """Two clocks: one that only goes on, and the one on the wall, which is days off."""

    now: float = 0.0
    days: int = 0

    def read(self) -> float:
        """Return seconds, as `time.monotonic` does."""
        return self.now

    @contextlib.contextmanager
    def on_the_wall(self) -> Iterator[None]:
        """Let `time.time` and `time.time_ns` be off, for as long as the context lasts."""
        actual, actual_ns = time.time, time.time_ns

        def seconds() -> float:
            return actual() + 86_400 * self.days

        def nanoseconds() -> int:
            return actual_ns() + 86_400 * 10**9 * self.days

        with (
            mock.patch.object(time, "time", seconds),
            mock.patch.object(time, "time_ns", nanoseconds),
        ):
            yield


@dataclasses.dataclass(eq=False)
class ModelPlan:
    """What a plan directory must look like."""

    path: Path
    n_shards: int
    onlooker: Any
    """A store that is opened once, and looks after every step: it must not remember."""
    done: dict[int, dict[str, bytes]] = dataclasses.field(default_factory=dict)
    holders: dict[int, "ModelWork"] = dataclasses.field(default_factory=dict)

    @property
    def pending(self) -> list[int]:
        """Shards that are not done, ascending."""
        return [index for index in range(self.n_shards) if index not in self.done]

    @property
    def free(self) -> list[int]:
        """Shards that are not done, and that no worker holds."""
        return [index for index in self.pending if index not in self.holders]


@dataclasses.dataclass(eq=False)
class ModelWorker:
    """One process: it has opened the store once."""

    plan: ModelPlan
    store: Any
    seen: dict[int, tuple["ModelWork", float]] = dataclasses.field(default_factory=dict)
    """Whose claim it was refused for, and when it met that claim first."""

    def may_claim(self, index: int, now: float, stale_after: float) -> bool:
        """Whether an attempt must succeed; one that must not is remembered, as the store does."""
        if index in self.plan.done:
            return False
        holder = self.plan.holders.get(index)
        if holder is None:
            return True
        seen, since = self.seen.get(index, (None, 0.0))
        if seen is not holder:
            self.seen[index] = holder, now
            return False
        return now - since >= stale_after


@dataclasses.dataclass(eq=False)
class ModelWork:
    """What one worker does for one shard; two works never write the same bytes."""

    worker: ModelWorker
    index: int
    handle: Any
    outputs: dict[str, bytes]
    is_begun: bool = False
    is_written: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether another worker took the shard over, done or not."""
        return self.worker.plan.holders.get(self.index) is not self
