"""How the rows of an epoch are dealt to ranks, in windows, and those in batches."""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from shardproof.loaders.order._orders import InOrder, Listed, Order, Stream, permutation
from shardproof.loaders.order._selection import Rows
from shardproof.manifest import Count

MOST_COUNTED = 2**53


class DeliveredPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an epoch: how many batches each of so many ranks had."""

    world_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_COUNTED)]
    n_batches: Count


@dataclasses.dataclass(frozen=True, slots=True)
class EpochPosition:
    """A position in an epoch: after so many batches, and what other world sizes had before."""

    epoch: int
    before: tuple[DeliveredPart, ...] = ()
    n_batches: int = 0


class Window(NamedTuple):
    """Rows that are delivered one after the other."""

    rows: Rows  # in the order of the stream, which is that of reading
    order: Rows | None  # which of them comes when; None for the same order

    @property
    def delivered(self) -> Rows:
        return self.rows if self.order is None else self.rows[self.order]

    def part(self, start: int, stop: int) -> "Window":
        """Return what is delivered from one place to another."""
        if self.order is None:
            return Window(self.rows[start:stop], None)
        order = self.order[start:stop]
        kept = np.zeros(len(self.rows), np.bool_)
        kept[order] = True
        return Window(self.rows[kept], (np.cumsum(kept) - 1)[order])


class EpochPlan:
    """Deals a stream to the ranks in windows, and those in batches."""

    # The first window goes to rank 0, the next to rank 1, and so on, again and again. What is left
    # at the end and is too little for a window each is split evenly.

    def __init__(
        self, stream: Stream, world_size: int, key: tuple[int, int], share: "RankShare"
    ) -> None:
        self.stream, self.world_size, self.key, self.share = stream, world_size, key, share
        self.batch_size, self.window_rows = share.batch_size, share.order.window_rows
        self.window_batches = self.window_rows // self.batch_size
        # That a rank has, with the last one, which may be empty.
        self.n_windows = -(-stream.n_rows // (self.window_rows * world_size))

    def windows(self, numbers: range, rank: int) -> Window:
        """Return a rank's rows of some windows, of which only a single one may be permuted."""
        if len(numbers) == 1:
            return self.window(numbers[0], rank)
        bounds = [self._bounds(number, rank) for number in numbers]
        if self.world_size == 1:  # those of one rank follow each other
            bounds = [(bounds[0][0], bounds[-1][1])]
        return Window(np.concatenate([self.stream.rows(*each) for each in bounds]), None)

    def window(self, number: int, rank: int) -> Window:
        """Return a rank's rows of one window."""
        rows = self.stream.rows(*self._bounds(number, rank))
        seed = self.share.order.window_seed
        if seed is None:
            return Window(rows, None)
        key = (seed, *self.key, number, rank, self.world_size)
        return Window(rows, permutation(len(rows), *key))

    def _bounds(self, number: int, rank: int) -> tuple[int, int]:
        turn = self.window_rows * self.world_size
        base = number * turn
        left = max(0, self.stream.n_rows - base)
        if left >= turn:
            start = base + rank * self.window_rows
            return start, start + self.window_rows
        return base + left * rank // self.world_size, base + left * (rank + 1) // self.world_size

    def n_rows(self, rank: int) -> int:
        """Return how many rows a rank is dealt, before any are left out."""
        if not self.n_windows:
            return 0
        start, stop = self._bounds(self.n_windows - 1, rank)
        return (self.n_windows - 1) * self.window_rows + stop - start

    def n_batches(self, rank: int) -> int:
        ranks = range(self.world_size) if self.share.even_batches else [rank]
        more = 0 if self.share.drop_last else self.batch_size - 1  # for a last one that is not full
        return min((self.n_rows(each) + more) // self.batch_size for each in ranks)

    @property
    def n_steps(self) -> int:
        """How many batches the rank with the most has."""
        return self.n_batches(self.world_size - 1)

    def n_left(self, n_batches: int) -> int:
        """Return how many rows are left when each rank has delivered so many batches."""
        done = n_batches * self.batch_size
        ranks = range(self.world_size)
        return self.stream.n_rows - sum(min(self.n_rows(rank), done) for rank in ranks)

    def n_delivered(self, rank: int) -> int:
        return min(self.n_rows(rank), self.n_batches(rank) * self.batch_size)

    def after(self, n_batches: int) -> Stream:
        """Return what is left when each rank has delivered so many batches."""
        number, within = divmod(n_batches * self.batch_size, self.window_rows)
        if number >= self.n_windows:
            return InOrder(0)
        ranks = range(self.world_size)
        windows = [self.window(number, rank).delivered[within:] for rank in ranks]
        head = np.sort(np.concatenate(windows)) if within else np.empty(0, np.int64)
        skipped = (number + bool(within)) * self.window_rows * self.world_size
        return Listed(head, self.stream, min(skipped, self.stream.n_rows))


@dataclasses.dataclass(frozen=True, slots=True)
class RankShare:
    """What one rank is dealt of an order, from any position of an epoch on."""

    # With ``even_batches`` every rank has as many batches as the one with the fewest.

    order: Order
    rank: int
    world_size: int
    batch_size: int
    drop_last: bool
    even_batches: bool

    def plan(self, start: EpochPosition) -> EpochPlan:
        """Return how what is left of an epoch is dealt."""
        stream = self.order.stream(start.epoch)
        for generation, part in enumerate(start.before):
            plan = EpochPlan(stream, part.world_size, (start.epoch, generation), self)
            stream = plan.after(part.n_batches)
        return EpochPlan(stream, self.world_size, (start.epoch, len(start.before)), self)

    def counted(self, before: Sequence[DeliveredPart] = ()) -> EpochPlan:
        """Return a plan for its counts, which don't depend on the order."""
        n_rows = self.order.n_rows
        for part in before:
            plan = EpochPlan(InOrder(n_rows), part.world_size, (0, 0), self)
            n_rows = plan.n_left(part.n_batches)
        return EpochPlan(InOrder(n_rows), self.world_size, (0, 0), self)

    def n_left(self, position: EpochPosition) -> int:
        """Return how many batches of its epoch this rank has after a position."""
        return self.counted(position.before).n_batches(self.rank) - position.n_batches
