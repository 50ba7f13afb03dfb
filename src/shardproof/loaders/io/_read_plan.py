"""What is read from where to where, decided before any of it is read.

A row is copied once, from the page cache to where it is wanted. Rows that lie one after the other
in a file are read by one call, wherever each of them goes (readv(2)); a few rows between many that
are wanted are read, too, and go nowhere.
"""

import dataclasses
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from shardproof.loaders.io._memory import MOST_VECTORS, VECTOR, Buffer, Vectors, vectors
from shardproof.loaders.io._open_shards import ShardReads
from shardproof.loaders.order._epoch_plan import Window
from shardproof.loaders.order._selection import Rows, Selection

_MANY = 512  # fewer places are sorted faster at once than by 16 bits at a time
_MOST_GAP = 32  # what is read for nothing is at most one of so many rows
_MOST_JOINED = 2**24  # runs are read together in blocks of so many bytes: a call sees no signal


@dataclasses.dataclass(frozen=True, slots=True)
class ReadPlan:
    """The reads that bring some rows into buffers, whichever these are."""

    reads: ShardReads  # of which the vectors say where a piece begins in its buffer
    buffer: Rows  # of each vector
    n_skipped: int  # bytes of the longest piece that is read for nothing, into a buffer of its own

    @classmethod
    def of(cls, selection: Selection, window: Window, buffer_rows: int) -> Self:
        """Return the plan for the rows of a window, which go into buffers in order."""
        places, size = selection.places(window.rows), selection.row_bytes
        shards = places // selection.rows_per_shard
        begins_run = np.ones(len(places), np.bool_)  # of rows that follow each other in a file
        begins_run[1:] = (places[1:] != places[:-1] + 1) | (shards[1:] != shards[:-1])
        begins_piece = begins_run.copy()  # of memory
        begins_piece[:: buffer_rows if window.order is None else 1] = True
        pieces = np.flatnonzero(begins_piece)
        goals, buffer = _goals(pieces, window, buffer_rows, size)
        skipped = _skipped(places, shards, begins_run, _MOST_JOINED // size)[pieces]
        begins_read = begins_run[pieces] & (skipped == 0)
        vector = np.arange(len(pieces))
        if has_gaps := bool(skipped.any()):
            goals, buffer, vector = _with_gaps(goals, buffer, skipped * size)
        first = _split(begins_read, MOST_VECTORS // 2 if has_gaps else MOST_VECTORS)
        start, end = pieces[first], _stops(pieces[first], len(places)) - 1
        reads = ShardReads(
            shard=shards[start],
            offset=(places[start] - shards[start] * selection.rows_per_shard) * size,
            first=vector[first],
            stop=vector[_stops(first, len(pieces)) - 1] + 1,
            length=(places[end] - places[start] + 1) * size,
            vectors=goals,
        )
        longest = int(skipped.max(initial=0)) * size
        return cls(reads.part(_ascending(places[start])), buffer, longest)

    def into(self, buffers: Sequence[Buffer]) -> ShardReads:
        """Return the reads that fill these buffers."""
        memory = (*buffers, Buffer(1, self.n_skipped))
        addresses = np.array([each.address for each in memory], np.uintp)
        vectors = self.reads.vectors.copy()
        vectors["base"] += addresses[self.buffer]
        return self.reads._replace(vectors=vectors, memory=memory)


def _goals(pieces: Rows, window: Window, buffer_rows: int, row_bytes: int) -> tuple[Vectors, Rows]:
    """Return where pieces whose rows begin at places of the window begin, in which buffer each."""
    places = pieces
    if window.order is not None:
        places = np.empty(len(window.rows), np.int64)
        places[window.order] = np.arange(len(places))
    buffer, row = np.divmod(places, buffer_rows)
    lengths = (_stops(pieces, len(window.rows)) - pieces) * row_bytes
    return vectors((row * row_bytes).astype(np.uintp), lengths), buffer


def _skipped(
    places: Rows, shards: Rows, begins_run: npt.NDArray[np.bool_], block_rows: int
) -> Rows:
    """Return how many rows before each are read for nothing, to read a run with the last one."""
    # One call for many examples, whose special tokens are skipped, is faster than one for each.
    skipped, starts = np.zeros(len(places), np.int64), np.flatnonzero(begins_run)
    n_rows, later = _stops(starts, len(places)) - starts, starts[1:]
    gap = places[later] - places[later - 1] - 1
    is_short = (gap > 0) & (gap * _MOST_GAP <= np.minimum(n_rows[1:], n_rows[:-1]))
    block = places // max(1, block_rows)
    is_near = (shards[later] == shards[later - 1]) & (block[later] == block[later - 1])
    skipped[later] = np.where(is_short & is_near, gap, 0)
    return skipped


def _split(begins_read: npt.NDArray[np.bool_], most: int) -> Rows:
    """Return which pieces begin a read, so that each read has a number of them at most."""
    # Only what is longer is split: of a read that begins where the last one ended the kernel thinks
    # that more is to follow, and reads it from the disk in vain.
    first = np.flatnonzero(begins_read)
    counts = _stops(first, len(begins_read)) - first
    if counts.max(initial=0) <= most:
        return first
    within = np.arange(len(begins_read)) - np.repeat(first, counts)
    return np.flatnonzero(within % most == 0)


def _with_gaps(goals: Vectors, buffer: Rows, skipped: Rows) -> tuple[Vectors, Rows, Rows]:
    """Return vectors with one before each piece for the bytes that are skipped before it."""
    is_behind_gap = skipped > 0
    place = np.arange(len(goals)) + np.cumsum(is_behind_gap)
    made = np.zeros(int(place[-1]) + 1, VECTOR)
    made[place] = goals
    made["length"][place[is_behind_gap] - 1] = skipped[is_behind_gap]
    made_buffer = np.full(len(made), -1)  # the last one
    made_buffer[place] = buffer
    return made, made_buffer, place


def _ascending(places: Rows) -> Rows:
    """Return the order that sorts some places, none of which is negative."""
    # Numpy counts numbers of 16 bits instead of comparing them, which takes a fourth of the time
    # for thousands of them, and a seventh for 65 536.
    if len(places) < _MANY:
        return np.argsort(places, kind="stable")
    order = np.argsort(places.astype(np.uint16), kind="stable")
    while (places := places >> 16).any():
        order = order[np.argsort(places.astype(np.uint16)[order], kind="stable")]
    return order


def _stops(starts: Rows, end: int) -> Rows:
    return np.concatenate((starts[1:], [end]))
