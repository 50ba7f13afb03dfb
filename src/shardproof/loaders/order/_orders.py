"""Which row of an epoch comes when: its number and a seed decide, so any part is known at once."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64, SeedSequence  # numpy would import it later, in a thread that reads

from shardproof.loaders.order._selection import Rows, Selection

Mask = npt.NDArray[np.bool_]  # which rows of which example are wanted, ``[example, row]``


def permutation(n: int, *key: int) -> Rows:
    """Return the numbers below ``n`` in an order that depends on the key alone."""
    # On no version of numpy: the bits of PCG64 and of SeedSequence never change, only what the
    # methods of Generator make of them may (NEP 19). Each number carries random bits above its own:
    # sorting them takes a fifth of the time of sorting numbers by random keys, and knows no ties.
    n_bits = max(1, (n - 1).bit_length())
    bits = PCG64(SeedSequence(key)).random_raw(n)
    numbers = (bits >> n_bits << n_bits) | np.arange(n, dtype=np.uint64)
    numbers.sort()
    return (numbers & np.uint64((1 << n_bits) - 1)).astype(np.int64)


@dataclasses.dataclass(frozen=True, slots=True)
class InOrder:
    """All rows in the file's order."""

    n_rows: int

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        return np.arange(start, stop, dtype=np.int64)


class ShuffledExamples:
    """Examples in any order, and the wanted rows of each together: all, or those that are kept."""

    def __init__(self, examples: Rows, rows_per_example: int, kept: Mask | None) -> None:
        self._examples, self._rows_per_example, self._kept = examples, rows_per_example, kept
        counts = np.full(len(examples), rows_per_example) if kept is None else kept.sum(axis=1)
        self._ends = np.cumsum(counts[examples] if kept is not None else counts, dtype=np.int64)
        self.n_rows = int(self._ends[-1]) if len(self._ends) else 0

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        if start >= stop:
            return np.empty(0, np.int64)
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop - 1, side="right")) + 1
        before = int(self._ends[first - 1]) if first else 0
        examples = self._examples[first:last]
        rows = examples[:, None] * self._rows_per_example + np.arange(self._rows_per_example)
        found: Rows = rows.reshape(-1) if self._kept is None else rows[self._kept[examples]]
        return found[start - before : stop - before]


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """Some rows, in whatever order, and then the end of a stream."""

    head: Rows
    stream: "Stream" = InOrder(0)
    skipped: int = 0

    @property
    def n_rows(self) -> int:
        return len(self.head) + self.stream.n_rows - self.skipped

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        n_head = len(self.head)
        if stop <= n_head:
            return self.head[start:stop]
        tail_start, tail_stop = (max(0, at - n_head) + self.skipped for at in (start, stop))
        tail = self.stream.rows(tail_start, min(tail_stop, self.stream.n_rows))
        return np.concatenate((self.head[start:stop], tail))


Stream = InOrder | ShuffledExamples | Listed  # all rows of an epoch, one after the other


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Rows in the order of the shards, unless a subclass says otherwise."""

    n_rows: int
    window_rows: int
    window_seed: int | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    def stream(self, _epoch: int, /) -> Stream:
        """Return all rows of an epoch in their order."""
        return InOrder(self.n_rows)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledOrder(Order):
    """Examples permuted over the directory, and their rows permuted within windows."""

    # Without a ``window_seed``, all rows are permuted, and each of them is a read of its own.

    seed: int
    selection: Selection
    kept: Mask | None  # None for all

    def stream(self, epoch: int, /) -> Stream:
        if self.window_seed is None:
            order = permutation(self.n_rows, self.seed, epoch)
            return Listed(order if self.kept is None else np.flatnonzero(self.kept)[order])
        examples = permutation(self.selection.metadata.n_examples, self.seed, epoch)
        return ShuffledExamples(examples, self.selection.rows_per_example, self.kept)
