"""Which row comes when: in what order, to which rank, and after a resume.

Nothing here reads a file: an order is arithmetic over row numbers, so that any part of it is known
at once.
"""

import dataclasses
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shardproof.loaders.order._selection import Rows

__all__ = [
    "InOrder",
    "Plan",
    "Remainder",
    "Shuffled",
    "ShuffledRows",
    "Stream",
    "Window",
    "permutation",
]


class Stream(Protocol):
    """All rows of an epoch, one after the other."""

    @property
    def n_rows(self) -> int:
        """How many."""
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
    bits = np.random.PCG64(np.random.SeedSequence(key)).random_raw(n)
    numbers = (bits >> n_bits << n_bits) | np.arange(n, dtype=np.uint64)
    numbers.sort()
    return (numbers & np.uint64((1 << n_bits) - 1)).astype(np.int64)


class Window(NamedTuple):
    """Rows that are delivered one after the other."""

    rows: Rows
    """In the order of the stream, which is that of reading."""
    order: Rows | None
    """Which of them comes when; None for the same order."""

    @property
    def delivered(self) -> Rows:
        """The rows in the order of delivery."""
        return self.rows if self.order is None else self.rows[self.order]

    def part(self, start: int, stop: int) -> "Window":
        """Return what is delivered from one place to another."""
        if self.order is None:
            return Window(self.rows[start:stop], None)
        order = self.order[start:stop]
        kept = np.zeros(len(self.rows), np.bool_)
        kept[order] = True
        return Window(self.rows[kept], (np.cumsum(kept) - 1)[order])


@dataclasses.dataclass(frozen=True, slots=True)
class InOrder:
    """The file's order."""

    n_rows: int

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        return np.arange(start, stop, dtype=np.int64)


class Shuffled:
    """Examples in any order, the wanted rows of each one after the other.

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
        found = self._rows_of(self._examples[first:last])
        return found[start - before : stop - before]

    def _rows_of(self, examples: Rows) -> Rows:
        rows = examples[:, None] * self._rows_per_example + np.arange(self._rows_per_example)
        return rows.reshape(-1) if self._kept is None else rows[self._kept[examples]]


@dataclasses.dataclass(frozen=True, slots=True)
class ShuffledRows:
    """Rows in any order: a true permutation."""

    order: Rows

    @property
    def n_rows(self) -> int:
        """How many."""
        return len(self.order)

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        return self.order[start:stop]


@dataclasses.dataclass(frozen=True, slots=True)
class Remainder:
    """Some rows, and then the end of a stream: what is left of an epoch."""

    head: Rows
    stream: Stream
    skipped: int

    @property
    def n_rows(self) -> int:
        """How many."""
        return len(self.head) + self.stream.n_rows - self.skipped

    def rows(self, start: int, stop: int) -> Rows:
        """Return the numbers of a part of the rows."""
        n_head = len(self.head)
        tail_start, tail_stop = (max(0, at - n_head) + self.skipped for at in (start, stop))
        tail = self.stream.rows(tail_start, min(tail_stop, self.stream.n_rows))
        return np.concatenate((self.head[start:stop], tail))


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How a stream is dealt to the ranks: in windows, and those in batches.

    The first window goes to rank 0, the next to rank 1, and so on, again and again. What is left
    at the end and is too little for a window each is split evenly.

    Attributes:
        stream: All rows.
        world_size: How many ranks.
        batch_size: Rows of a batch.
        window_rows: Rows of a window, a multiple of ``batch_size``.
        key: Seed of the order within windows; None to leave them as they are.
        drop_last: Whether a last batch that is not full is left out.
        even_batches: Whether every rank has as many batches as the one with the fewest.
    """

    stream: Stream
    world_size: int
    batch_size: int
    window_rows: int
    key: tuple[int, ...] | None
    drop_last: bool
    even_batches: bool

    def window(self, number: int, rank: int) -> Window:
        """Return a rank's rows of one window."""
        rows = self.stream.rows(*self._bounds(number, rank))
        if self.key is None:
            return Window(rows, None)
        return Window(rows, permutation(len(rows), *self.key, number, rank, self.world_size))

    def _bounds(self, number: int, rank: int) -> tuple[int, int]:
        turn = self.window_rows * self.world_size
        base = number * turn
        left = max(0, self.stream.n_rows - base)
        if left >= turn:
            start = base + rank * self.window_rows
            return start, start + self.window_rows
        return base + left * rank // self.world_size, base + left * (rank + 1) // self.world_size

    @property
    def n_windows(self) -> int:
        """How many windows a rank has, with the last one, which may be empty."""
        return -(-self.stream.n_rows // (self.window_rows * self.world_size))

    def n_rows(self, rank: int) -> int:
        """How many rows a rank is dealt, before any are left out."""
        if not self.n_windows:
            return 0
        start, stop = self._bounds(self.n_windows - 1, rank)
        return (self.n_windows - 1) * self.window_rows + stop - start

    def n_batches(self, rank: int) -> int:
        """How many batches a rank has."""
        ranks = range(self.world_size) if self.even_batches else [rank]
        counts = [self.n_rows(each) for each in ranks]
        size = self.batch_size
        return min(count // size if self.drop_last else -(-count // size) for count in counts)

    @property
    def n_steps(self) -> int:
        """How many batches the rank with the most has."""
        return self.n_batches(self.world_size - 1)

    def n_left(self, n_batches: int) -> int:
        """How many rows are left when each rank has delivered so many batches."""
        done = n_batches * self.batch_size
        ranks = range(self.world_size)
        return self.stream.n_rows - sum(min(self.n_rows(rank), done) for rank in ranks)

    def n_delivered(self, rank: int) -> int:
        """How many rows a rank delivers in an epoch."""
        return min(self.n_rows(rank), self.n_batches(rank) * self.batch_size)

    def after(self, n_batches: int) -> Stream:
        """Return what is left when each rank has delivered so many batches."""
        done = n_batches * self.batch_size
        number, within = divmod(done, self.window_rows)
        if number >= self.n_windows:
            return InOrder(0)
        ranks = range(self.world_size)
        windows = [self.window(number, rank).delivered[within:] for rank in ranks]
        head = np.sort(np.concatenate(windows)) if within else np.empty(0, np.int64)
        skipped = (number + bool(within)) * self.window_rows * self.world_size
        return Remainder(head, self.stream, min(skipped, self.stream.n_rows))
