"""The orders that a loader may deliver in, decided by a seed and the number of the epoch alone."""

import dataclasses
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shardproof.loaders.order._selection import Selection
from shardproof.loaders.order._streams import (
    InOrder,
    ShuffledExamples,
    ShuffledRows,
    Stream,
    permutation,
)

__all__ = ["FileOrder", "Order", "PoolOrder", "RowOrder"]

Mask = npt.NDArray[np.bool_]


class Order(Protocol):
    """Decides in which order rows are delivered."""

    @property
    def n_rows(self) -> int:
        """How many rows an epoch has, over all ranks."""
        ...

    @property
    def window_rows(self) -> int:
        """How many rows are brought into memory together; a multiple of the batch's."""
        ...

    @property
    def window_seed(self) -> int | None:
        """Seed of the order within windows; None to leave them as they are."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """What the order depends on, besides rows and batch size; plain JSON."""
        ...

    def stream(self, epoch: int, /) -> Stream:
        """Return all rows of an epoch in their order."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class FileOrder:
    """Rows in the order of the shards, in windows of one batch."""

    n_rows: int
    window_rows: int
    window_seed: None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Nothing that the order depends on."""
        return {}

    def stream(self, _epoch: int, /) -> Stream:
        """Return all rows."""
        return InOrder(self.n_rows)


@dataclasses.dataclass(frozen=True, slots=True)
class PoolOrder:
    """Examples permuted over the directory, and their rows permuted within windows.

    Attributes:
        n_rows: How many rows are left.
        window_rows: Rows of a window.
        window_seed: Of both permutations.
        settings: What a state says of the order.
        selection: The wanted rows.
        kept: Which rows of which example are left, ``[example, row]``; None for all.
    """

    n_rows: int
    window_rows: int
    window_seed: int
    settings: dict[str, Any]
    selection: Selection
    kept: Mask | None

    def stream(self, epoch: int, /) -> Stream:
        """Return the rows of an epoch, example by example."""
        examples = permutation(self.selection.metadata.n_examples, self.window_seed, epoch)
        return ShuffledExamples(examples, self.selection.rows_per_example, self.kept)


@dataclasses.dataclass(frozen=True, slots=True)
class RowOrder:
    """All rows permuted; each of them is a read of its own.

    Attributes:
        n_rows: How many rows are left.
        window_rows: Rows of a batch.
        settings: What a state says of the order.
        seed: Of the permutation.
        kept: Which rows of which example are left, ``[example, row]``; None for all.
    """

    n_rows: int
    window_rows: int
    settings: dict[str, Any]
    seed: int
    kept: Mask | None
    window_seed: None = None

    def stream(self, epoch: int, /) -> Stream:
        """Return the rows of an epoch."""
        order = permutation(self.n_rows, self.seed, epoch)
        return ShuffledRows(order if self.kept is None else np.flatnonzero(self.kept)[order])
