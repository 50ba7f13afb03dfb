"""One iteration: windows are planned one by one, read ahead by threads, delivered as batches."""

import dataclasses
import functools
import operator
from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple

from shardproof._base.work import Crew, apart, is_collecting, later
from shardproof.loaders.io._buffers import BufferPool
from shardproof.loaders.io._open_shards import OpenShards
from shardproof.loaders.io._read_plan import PlannedReads, ReadPlan
from shardproof.loaders.io._row_source import Batch, RowSource, batch_of
from shardproof.loaders.order._epoch_plan import EpochPlan, Window
from shardproof.loaders.order._selection import Rows

__all__ = ["PlannedWindow", "ReadAhead", "WindowRead"]


class PlannedWindow(NamedTuple):
    """A window of the rank, and how its rows are read; nothing is read or held for it yet.

    Attributes:
        number: Which window of the rank.
        plan: How its rows are read.
        batch_rows: Which rows each batch has.
    """

    number: int
    plan: ReadPlan
    batch_rows: list[Rows]


@dataclasses.dataclass(frozen=True, slots=True)
class WindowRead:
    """One window on its way into memory; its parts are begun in order, the last has its batches.

    Attributes:
        number: Which window of the rank.
        source: Where its rows come from.
        batch_rows: Which rows each batch has.
        reads: How they are read.
        pool: Which memory the buffers go back to.
    """

    number: int
    source: RowSource
    batch_rows: list[Rows]
    reads: PlannedReads
    pool: BufferPool

    def read(self, shards: OpenShards, part: int = 0, n_parts: int = 1) -> list[Batch]:
        """Read one part; with the last, return the batches over memory that all parts fill."""
        self.reads.read(shards, part, n_parts)
        if part < n_parts - 1:
            return []
        batches = []
        for rows, buffer in zip(self.batch_rows, self.reads.buffers, strict=True):
            act = buffer.array(len(rows), self.source.selection.dtype)
            batches.append(batch_of(self.source, rows, act))
            self.pool.give_back(buffer)
        return batches


@dataclasses.dataclass(frozen=True, slots=True)
class ReadAhead:
    """Reads what one iteration delivers, some windows ahead.

    Attributes:
        source: Where rows come from.
        plan: Which row comes when.
        rank: To whom.
        workers: How many threads read.
        pool: Memory for batches.
    """

    source: RowSource
    plan: EpochPlan
    rank: int
    workers: int
    pool: BufferPool

    def batches(self, first: int) -> Generator[Batch, None, None]:
        """Yield the batches from one on; threads and descriptors last as long as the generator."""
        shards = self.source.open()
        planner: _Planner = Crew(operator.call, 1, "shardproof-planner")
        readers: _Readers = Crew(operator.call, self.workers, "shardproof-reader")
        try:
            # One window, in its parts, is read while the one before is delivered.
            reads = self._reads(shards, planner, first)
            for batches in readers.results(reads, depth=self.workers + 1):
                batches.reverse()
                while batches:  # popped, so that its memory is the caller's alone
                    yield batches.pop()
        finally:
            try:
                _end(planner, readers, shards)
            finally:
                _end(planner, readers, shards)  # what an interrupt has cut short

    def _reads(self, shards: OpenShards, planner: "_Planner", first: int) -> Iterator["_Read"]:
        """Yield what reads each part of each window, in order.

        A window that one thread reads is planned by that thread; one that several read is planned
        by a thread before them, once for all. The caller's thread does neither.
        """
        windows = self._windows(first)
        if self.workers == 1 or self.plan.window_rows == self.plan.batch_size:
            for window in windows:
                yield functools.partial(self._read_whole, shards, window)
            return
        for planned in planner.results(windows, depth=2):
            reads = self._into_memory(planned)
            for part in range(self.workers):
                yield functools.partial(reads.read, shards, part, self.workers)

    def _windows(self, first: int) -> Iterator["_Plan"]:
        """Yield what plans each window from that of a batch on."""
        per_window = self.plan.window_rows // self.plan.batch_size
        n_batches = self.plan.n_batches(self.rank)
        for number in range(first // per_window, -(-n_batches // per_window)):
            n_skipped = max(0, first - number * per_window)
            if number * per_window + n_skipped >= n_batches:
                return
            yield functools.partial(self._planned, number, n_skipped)

    def _read_whole(self, shards: OpenShards, window: "_Plan") -> list[Batch]:
        return self._into_memory(window()).read(shards)

    def _planned(self, number: int, n_skipped: int) -> PlannedWindow:
        window, size = self._window(number, n_skipped), self.plan.batch_size
        rows = window.delivered
        batch_rows = [rows[at : at + size] for at in range(0, len(rows), size)]
        return PlannedWindow(number, ReadPlan.of(self.source.selection, window, size), batch_rows)

    def _window(self, number: int, n_skipped: int) -> Window:
        """Return what is delivered of a window, after some batches that were delivered before."""
        plan, rank = self.plan, self.rank
        window = plan.window(number, rank)
        start = n_skipped * plan.batch_size
        stop = plan.n_delivered(rank) - number * plan.window_rows
        if start or stop < len(window.rows):
            return window.part(start, max(0, stop))
        return window

    def _into_memory(self, window: PlannedWindow) -> WindowRead:
        buffers = [self.pool.take() for _ in window.batch_rows]
        reads = window.plan.into(buffers)
        return WindowRead(window.number, self.source, window.batch_rows, reads, self.pool)


_Plan = Callable[[], PlannedWindow]
_Read = Callable[[], list[Batch]]
_Planner = Crew[_Plan, PlannedWindow]
_Readers = Crew[_Read, list[Batch]]


def _end(planner: _Planner, readers: _Readers, shards: OpenShards) -> None:
    if is_collecting():
        later(lambda: _close(planner, readers, shards))
    else:
        _close(planner, readers, shards)


def _close(planner: _Planner, readers: _Readers, shards: OpenShards) -> None:
    """End the threads, and then close what they read from."""
    planner.end()
    readers.end()
    if shards.is_open:
        apart(shards.close)
