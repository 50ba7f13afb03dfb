"""Which row of an epoch comes when, and what is left of it.

Nothing here reads a file: an order is arithmetic over row numbers, so that any part of it is known
at once.
"""

import dataclasses
from typing import Protocol

import numpy as np
import numpy.typing as npt
from numpy.random import PCG64, SeedSequence  # numpy would import it later, in a thread that reads

from shardproof.loaders.order._selection import Rows

__all__ = [
    "InOrder",
    "Remainder",
    "ShuffledExamples",
    "ShuffledRows",
    "Stream",
    "permutation",
]


class Stream(Protocol):
    """All rows of an epoch, one after the other."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        ...

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of them."""
        ...


def permutation(n: int, *key: int) -> Rows:
    """Return the numbers below ``n`` in an order that depends on the key alone.

    On no version of numpy: the bits of PCG64 and of SeedSequence never change, only what the
    methods of Generator make of them may (NEP 19). Each number carries random bits above its own:
    sorting them takes a fifth of the time of sorting numbers by random keys, and knows no ties.
    """
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
    """Examples in any order, and the wanted rows of each together.

    Args:
        examples: Which example comes when.
        rows_per_example: How many rows an example has.
        kept: Which rows of which example are wanted, ``[example, row]``; None for all.
    """

    def __init__(
        self, examples: Rows, rows_per_example: int, kept: npt.NDArray[np.bool_] | None = None
    ) -> None:
        self._examples = examples
        self._rows_per_example = rows_per_example
        self._kept = kept
        counts = np.full(len(examples), rows_per_example) if kept is None else kept.sum(axis=1)
        self._ends = np.cumsum(counts[examples] if kept is not None else counts, dtype=np.int64)

    @property
    def n_rows(self) -> int:
        """How many rows are wanted."""
        return int(self._ends[-1]) if len(self._ends) else 0

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
class ShuffledRows:
    """All rows permuted."""

    order: Rows

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.order)

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        return self.order[start:stop]


@dataclasses.dataclass(frozen=True, slots=True)
class Remainder:
    """What is left of an epoch: some rows, and then the end of a stream."""

    head: Rows
    stream: Stream
    skipped: int

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.head) + self.stream.n_rows - self.skipped

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        n_head = len(self.head)
        tail_start, tail_stop = (max(0, at - n_head) + self.skipped for at in (start, stop))
        tail = self.stream.rows(tail_start, min(tail_stop, self.stream.n_rows))
        return np.concatenate((self.head[start:stop], tail))
