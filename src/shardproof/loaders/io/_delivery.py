"""One iteration: windows of a plan are read ahead by threads, and delivered batch by batch."""

import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Generator, Iterator

from shardproof._base.work import Crew, apart, is_collecting, later
from shardproof.loaders.io._gather import Gathering
from shardproof.loaders.io._memory import Block, Blocks
from shardproof.loaders.io._shards import OpenShards
from shardproof.loaders.io._source import Batch, Source, arrays
from shardproof.loaders.order._selection import Rows
from shardproof.loaders.order._streams import Plan, Window

__all__ = ["Delivery"]

_Readers = Crew[Callable[[], list[Batch]], list[Batch]]


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """What one iteration delivers.

    Attributes:
        source: Where rows come from.
        plan: Which row comes when.
        rank: For whom.
        n_threads: How many threads read.
        blocks: Memory for batches.
    """

    source: Source
    plan: Plan
    rank: int
    n_threads: int
    blocks: Blocks

    def batches(self, first: int) -> Generator[Batch, None, None]:
        """Yield batches from one on; threads and descriptors last as long as the generator."""
        n_parts = self.n_threads if self.plan.window_rows > self.plan.batch_size else 1
        shards = self.source.open()
        readers: _Readers = Crew(operator.call, self.n_threads, "shardproof-reader")
        try:
            # One window, in its parts, is read while the one before is delivered.
            tasks = self._tasks(shards, first, n_parts)
            for batches in readers.results(tasks, depth=self.n_threads + 1):
                batches.reverse()
                while batches:  # popped, so that its memory is the caller's alone
                    yield batches.pop()
        finally:
            try:
                _end(readers, shards)
            finally:
                _end(readers, shards)  # what an interrupt has cut short

    def _tasks(
        self, shards: OpenShards, first: int, n_parts: int
    ) -> Iterator[Callable[[], list[Batch]]]:
        per_window = self.plan.window_rows // self.plan.batch_size
        n_batches = self.plan.n_batches(self.rank)
        for number in range(first // per_window, -(-n_batches // per_window)):
            skipped = max(0, first - number * per_window)
            if number * per_window + skipped >= n_batches:
                return
            window = _Window(self, shards, number, skipped)
            for part in range(n_parts):
                yield functools.partial(window.read, part, n_parts)


def _end(readers: _Readers, shards: OpenShards) -> None:
    if is_collecting():
        later(lambda: _close(readers, shards))
    else:
        _close(readers, shards)


def _close(readers: _Readers, shards: OpenShards) -> None:
    """End the threads, and then close what they read from."""
    readers.end()
    if shards.is_open:
        apart(shards.close)


class _Window:
    """One window on its way. Its parts are taken in order, and the last has its batches."""

    def __init__(self, delivery: Delivery, shards: OpenShards, number: int, n_skipped: int) -> None:
        self._delivery, self._shards = delivery, shards
        self._number, self._n_skipped = number, n_skipped
        self._lock = threading.Lock()
        self._batches: list[Rows] = []
        self._taken: list[Block] = []
        self._gathering: Gathering | None = None

    def read(self, part: int, n_parts: int) -> list[Batch]:
        """Read one part; with the last, return the batches over memory that all parts fill."""
        self._planned().read(part, n_parts)
        return self._delivered() if part == n_parts - 1 else []

    def _planned(self) -> Gathering:
        """Decide once, by whichever thread comes first, which rows go where."""
        with self._lock:
            if self._gathering is None:
                window = self._window()
                rows, size = window.delivered, self._delivery.plan.batch_size
                self._batches = [rows[at : at + size] for at in range(0, len(rows), size)]
                self._taken = [self._delivery.blocks.take() for _ in self._batches]
                selection = self._delivery.source.selection
                self._gathering = Gathering(selection, self._shards, window, self._taken, size)
            return self._gathering

    def _window(self) -> Window:
        plan, rank = self._delivery.plan, self._delivery.rank
        window = plan.window(self._number, rank)
        start = self._n_skipped * plan.batch_size
        wanted = plan.n_delivered(rank) - self._number * plan.window_rows
        if start or wanted < len(window.rows):
            return window.part(start, max(0, wanted))
        return window

    def _delivered(self) -> list[Batch]:
        delivery = self._delivery
        batches = []
        for rows, block in zip(self._batches, self._taken, strict=True):
            act = block.array(len(rows), delivery.source.selection.dtype)
            batches.append(arrays(delivery.source, rows, act))
            delivery.blocks.give_back(block)
        return batches
