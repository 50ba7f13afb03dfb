"""What is read from where to where, decided before any of it is read.

A row is copied once, from the page cache to where it is wanted. Rows that lie one after the other
in a file are read by one call, wherever each of them goes (readv(2)).
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

import numpy as np

from shardproof.loaders.io._helper import Helper
from shardproof.loaders.io._memory import MOST_VECTORS, Buffer, Vectors, vectors
from shardproof.loaders.io._open_shards import OpenShards
from shardproof.loaders.io._shard_reads import ShardReads
from shardproof.loaders.order._epoch_plan import Window
from shardproof.loaders.order._selection import Rows, Selection

__all__ = ["ReadPlan"]

_MANY = 512
"""Fewer places are sorted faster at once than by 16 bits at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadPlan:
    """The reads that bring some rows into buffers; several threads may do a part of them each.

    Attributes:
        reads: In the order of the files.
        buffers: Where the rows go.
    """

    reads: ShardReads
    buffers: tuple[Buffer, ...]

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
        n_rows, size, runs = len(window.rows), selection.row_bytes, selection.runs(window.rows)
        begins_run = np.zeros(n_rows, np.bool_)
        begins_run[runs.start] = True
        begins_piece = begins_run.copy()  # of memory
        begins_piece[:: buffer_rows if window.order is None else 1] = True
        pieces = np.flatnonzero(begins_piece)
        begins_read = begins_run[pieces]
        begins_read[::MOST_VECTORS] = True
        first = np.flatnonzero(begins_read)
        start, stop = pieces[first], _stops(first, len(pieces))
        run = np.cumsum(begins_run)[start] - 1
        later = start - runs.start[run]
        reads = ShardReads(
            shard=runs.shard[run],
            offset=runs.offset[run] + later * size,
            first=first,
            stop=stop,
            length=(_stops(start, n_rows) - start) * size,
            vectors=_goals(pieces, window, buffers, buffer_rows, size),
            memory=tuple(buffers),
        )
        return cls(reads.part(_ascending(runs.place[run] + later)), tuple(buffers))

    def read(
        self, shards: OpenShards, part: int = 0, n_parts: int = 1, helper: Helper | None = None
    ) -> None:
        """Read the rows, or one of several parts of them.

        Raises:
            ShardReadError: A shard can't be read.
        """
        first, last = (len(self.reads.shard) * at // n_parts for at in (part, part + 1))
        shards.read_each(self.reads.part(slice(first, last)), helper)


def _goals(
    pieces: Rows, window: Window, buffers: Sequence[Buffer], buffer_rows: int, row_bytes: int
) -> Vectors:
    """Return where pieces of memory are whose rows begin at places of the window."""
    places = pieces
    if window.order is not None:
        places = np.empty(len(window.rows), np.int64)
        places[window.order] = np.arange(len(places))
    buffer, row = np.divmod(places, buffer_rows)
    addresses = np.array([each.address for each in buffers], np.uintp)
    lengths = (_stops(pieces, len(window.rows)) - pieces) * row_bytes
    return vectors(addresses[buffer] + (row * row_bytes).astype(np.uintp), lengths)


def _ascending(places: Rows) -> Rows:
    """Return the order that sorts some places, none of which is negative.

    Numpy counts numbers of 16 bits instead of comparing them, which takes a fourth of the time for
    thousands of them, and a seventh for 65 536.
    """
    if len(places) < _MANY:
        return np.argsort(places, kind="stable")
    order = np.argsort(places.astype(np.uint16), kind="stable")
    while (places := places >> 16).any():
        order = order[np.argsort(places.astype(np.uint16)[order], kind="stable")]
    return order


def _stops(starts: Rows, end: int) -> Rows:
    return np.concatenate((starts[1:], [end]))
