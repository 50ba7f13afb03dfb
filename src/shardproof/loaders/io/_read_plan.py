"""What is read from where to where, decided before any of it is read.

A row is copied once, from the page cache to where it is wanted. Rows that lie one after the other
in a file are read by one call, wherever each of them goes (readv(2)).
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Self

import numpy as np

from shardproof.loaders.io._memory import Buffer, RowVectors, Vectors, vectors
from shardproof.loaders.io._open_shards import BufferReads, OpenShards, ShardRead
from shardproof.loaders.order._epoch_plan import Window
from shardproof.loaders.order._selection import Runs, Selection

__all__ = ["ReadPlan"]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadPlan:
    """The reads that bring some rows into buffers; several threads may do a part of them each.

    Attributes:
        runs: Rows that lie together, in the order of the files, which is that of reading.
        row_bytes: Bytes of a row.
        buffers: Where the rows go; this memory is kept alive here.
        goals: Where each row goes; None if all go into the first buffer, in order.
    """

    runs: Runs
    row_bytes: int
    buffers: tuple[Buffer, ...]
    goals: Vectors | None

    @classmethod
    def of(
        cls, selection: Selection, window: Window, buffers: Sequence[Buffer], buffer_rows: int
    ) -> Self:
        """Return the plan for the rows of a window.

        Args:
            selection: Of which rows those of the window are.
            window: Their numbers, and which of them comes when.
            buffers: Where they go: together with room for all, each but the last filled.
            buffer_rows: Rows of a buffer.
        """
        runs = selection.runs(window.rows)
        runs = runs.part(np.argsort(runs.place, kind="stable"))
        size, goals = selection.row_bytes, None
        if window.order is not None or len(buffers) > 1:
            places = np.arange(len(window.rows))
            if window.order is not None:
                places[window.order] = places.copy()
            buffer, place = np.divmod(places, buffer_rows)
            addresses = np.array([each.address for each in buffers], np.uintp)
            goals = vectors(addresses[buffer] + (place * size).astype(np.uintp), size)
        return cls(runs, size, tuple(buffers), goals)

    def read(self, shards: OpenShards, part: int = 0, n_parts: int = 1) -> None:
        """Read the rows, or one of several parts of them.

        Raises:
            ShardReadError: A shard can't be read.
        """
        first, last = (len(self.runs.shard) * at // n_parts for at in (part, part + 1))
        if first == last:
            return
        runs, size = self.runs.part(slice(first, last)), self.row_bytes
        cuts = (np.flatnonzero(np.diff(runs.shard)) + 1).tolist()
        for begin, end in itertools.pairwise([0, *cuts, len(runs.shard)]):
            some = runs.part(slice(begin, end))  # in one shard
            shard = int(some.shard[0])
            if self.goals is None:
                starts, lengths = some.start * size, (some.stop - some.start) * size
                memory = self.buffers[0].bytes
                shards.read_each(shard, BufferReads(memory, some.offset, starts, lengths))
                continue
            spans = zip(some.offset.tolist(), some.start.tolist(), some.stop.tolist(), strict=True)
            for offset, start, stop in spans:
                shards.read(ShardRead(shard, offset, RowVectors(self.goals[start:stop], size)))
