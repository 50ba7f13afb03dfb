"""Rows of a directory brought into memory: one copy, from the page cache to where they are wanted.

Rows that lie one after the other in a file are read by one call, wherever each of them goes
(readv(2)).
"""

import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shardproof.loaders.io._destinations import RowVectors, Vectors, vectors
from shardproof.loaders.io._memory import Block
from shardproof.loaders.io._shards import OpenShards, Pieces, Span
from shardproof.loaders.order._selection import Runs, Selection
from shardproof.loaders.order._streams import Window

__all__ = ["Gathering"]


class _Work(NamedTuple):
    runs: Runs
    """In the order of the files, which is that of reading."""
    places: Vectors | None
    """Where each row goes; None for one block, from its beginning, in order."""


class Gathering:
    """Some rows on their way into blocks, read in parts by several threads.

    Args:
        selection: What the rows are.
        shards: Where they are.
        window: Their numbers, and which of them comes when.
        blocks: Where they go: together with room for all, each but the last full.
        block_rows: Rows of a block.
    """

    def __init__(
        self,
        selection: Selection,
        shards: OpenShards,
        window: Window,
        blocks: Sequence[Block],
        block_rows: int,
    ) -> None:
        self._selection, self._shards, self._window = selection, shards, window
        self._blocks, self._block_rows = blocks, block_rows
        self._lock = threading.Lock()
        self._work: _Work | None = None

    def read(self, part: int, n_parts: int) -> None:
        """Read one part of the rows.

        Raises:
            ShardReadError: A shard can't be read.
        """
        runs, places = self._planned()
        first, last = (len(runs.shard) * at // n_parts for at in (part, part + 1))
        for mine in _by_shard(runs.part(slice(first, last))):
            if places is None:
                self._read_in_order(mine)
            else:
                self._read_scattered(mine, places)

    def _read_in_order(self, runs: Runs) -> None:
        size = self._selection.row_bytes
        starts, lengths = runs.start * size, (runs.stop - runs.start) * size
        pieces = Pieces(self._blocks[0].bytes, runs.offset, starts, lengths)
        self._shards.read_pieces(int(runs.shard[0]), pieces)

    def _read_scattered(self, runs: Runs, places: Vectors) -> None:
        size, shard = self._selection.row_bytes, int(runs.shard[0])
        spans = zip(runs.offset.tolist(), runs.start.tolist(), runs.stop.tolist(), strict=True)
        for offset, start, stop in spans:
            self._shards.read(Span(shard, offset, RowVectors(places[start:stop], size)))

    def _planned(self) -> _Work:
        """Work out once, by whichever thread comes first, what lies where."""
        with self._lock:
            if self._work is None:
                runs = self._selection.runs(self._window.rows)
                runs = runs.part(np.argsort(runs.place, kind="stable"))
                in_order = self._window.order is None and len(self._blocks) == 1
                self._work = _Work(runs, None if in_order else self._places())
            return self._work

    def _places(self) -> Vectors:
        size = self._selection.row_bytes
        places = np.arange(len(self._window.rows))
        if self._window.order is not None:
            places[self._window.order] = places.copy()
        block, place = np.divmod(places, self._block_rows)
        addresses = np.array([block.address for block in self._blocks], np.uintp)
        return vectors(addresses[block] + (place * size).astype(np.uintp), size)


def _by_shard(runs: Runs) -> Iterator[Runs]:
    """Take apart runs in the order of the files."""
    if len(runs.shard):
        cuts = (np.flatnonzero(np.diff(runs.shard)) + 1).tolist()
        for start, stop in itertools.pairwise([0, *cuts, len(runs.shard)]):
            yield runs.part(slice(start, stop))
