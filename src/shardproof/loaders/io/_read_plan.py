"""What is read from where to where, decided before any of it is read.

A row is copied once, from the page cache to where it is wanted. Rows that lie one after the other
in a file are read by one call, wherever each of them goes (readv(2)).
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from shardproof.loaders.io._buffers import Buffer
from shardproof.loaders.io._destinations import RowVectors, Vectors, vectors
from shardproof.loaders.io._open_shards import BufferReads, OpenShards, ShardRead
from shardproof.loaders.order._epoch_plan import Window
from shardproof.loaders.order._selection import Rows, Runs, Selection

__all__ = ["PlannedReads", "ReadPlan"]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadPlan:
    """The reads that bring some rows into buffers, whichever these will be.

    Attributes:
        runs: Rows that lie together, in the order of the files, which is that of reading.
        row_bytes: Bytes of a row.
        buffer: Into which buffer each row goes; None if all go into one, in order.
        offset: Where in it, in bytes.
    """

    runs: Runs
    row_bytes: int
    buffer: Rows | None
    offset: Rows | None

    @classmethod
    def of(cls, selection: Selection, window: Window, buffer_rows: int) -> Self:
        """Return the plan for the rows of a window.

        Args:
            selection: Of which rows those of the window are.
            window: Their numbers, and which of them comes when.
            buffer_rows: Rows of a buffer, each of which but the last is filled.
        """
        runs = selection.runs(window.rows)
        runs = runs.part(np.argsort(runs.place, kind="stable"))
        size, n_rows = selection.row_bytes, len(window.rows)
        if window.order is None and n_rows <= buffer_rows:
            return cls(runs, size, None, None)
        places = np.arange(n_rows)
        if window.order is not None:
            places[window.order] = places.copy()
        buffer, place = np.divmod(places, buffer_rows)
        return cls(runs, size, buffer, place * size)

    def into(self, buffers: Sequence[Buffer]) -> "PlannedReads":
        """Return the reads into some buffers, which have room for all rows together."""
        if self.buffer is None or self.offset is None:
            return PlannedReads(self, tuple(buffers), None)
        addresses = np.array([each.address for each in buffers], np.uintp)
        goals = vectors(addresses[self.buffer] + self.offset.astype(np.uintp), self.row_bytes)
        return PlannedReads(self, tuple(buffers), goals)


@dataclasses.dataclass(frozen=True, slots=True)
class PlannedReads:
    """The reads of a plan into some buffers; several threads may do a part of them each.

    Attributes:
        plan: What is read.
        buffers: Where the rows go; this memory is kept alive here.
        goals: Where each row goes; None if all go into the first buffer, in order.
    """

    plan: ReadPlan
    buffers: tuple[Buffer, ...]
    goals: Vectors | None

    def read(self, shards: OpenShards, part: int = 0, n_parts: int = 1) -> None:
        """Read the rows, or one of several parts of them.

        Raises:
            ShardReadError: A shard can't be read.
        """
        runs = self.plan.runs
        first, last = (len(runs.shard) * at // n_parts for at in (part, part + 1))
        for some in _by_shard(runs.part(slice(first, last))):
            if self.goals is None:
                self._read_in_order(shards, some)
            else:
                self._read_scattered(shards, some, self.goals)

    def _read_in_order(self, shards: OpenShards, runs: Runs) -> None:
        size = self.plan.row_bytes
        starts, lengths = runs.start * size, (runs.stop - runs.start) * size
        reads = BufferReads(self.buffers[0].bytes, runs.offset, starts, lengths)
        shards.read_each(int(runs.shard[0]), reads)

    def _read_scattered(self, shards: OpenShards, runs: Runs, goals: Vectors) -> None:
        size, shard = self.plan.row_bytes, int(runs.shard[0])
        spans = zip(runs.offset.tolist(), runs.start.tolist(), runs.stop.tolist(), strict=True)
        for offset, start, stop in spans:
            shards.read(ShardRead(shard, offset, RowVectors(goals[start:stop], size)))


def _by_shard(runs: Runs) -> Iterator[Runs]:
    """Take apart runs that are in the order of the files."""
    if len(runs.shard):
        cuts = (np.flatnonzero(np.diff(runs.shard)) + 1).tolist()
        for start, stop in itertools.pairwise([0, *cuts, len(runs.shard)]):
            yield runs.part(slice(start, stop))
