"""Rows by their number."""

import operator
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self, SupportsIndex

import numpy as np
import numpy.typing as npt

from shardproof._base.arguments import checked
from shardproof._base.work import apart, in_threads
from shardproof.loaders._options import torch_module
from shardproof.loaders._processes import end_with_process
from shardproof.loaders.io._destinations import Piece
from shardproof.loaders.io._gather import Gathering
from shardproof.loaders.io._memory import Blocks
from shardproof.loaders.io._shards import OpenShards, Span
from shardproof.loaders.io._source import UNLABELLED, Batch, WholeBatch, arrays, open_source
from shardproof.loaders.order._selection import LayerChoice, Rows, TokenChoice
from shardproof.loaders.order._streams import Window
from shardproof.saev import Metadata

__all__ = ["IndexedDataset"]

_KEPT_BYTES = 2**27
_ROWS_FOR_TWO = 1024
"""From so many rows on a second thread takes less time than starting it."""


class IndexedDataset:
    """The activations of a saev directory by number, in the file's order: example, layer, token.

    A map-style dataset: ``torch.utils.data.DataLoader(dataset, batch_size=...)`` asks it for whole
    batches (``__getitems__``), which need no collating. It may be sent to other processes, each of
    which opens the shards for itself.

    Args:
        shards: The directory.
        layer: A recorded layer, or ``"all"``.
        tokens: ``"content"``, ``"special"`` or ``"all"``.

    Raises:
        ShardValidationError: Something in the directory is not as promised.
        ManifestError: What it promises can't be read.
        ValueError: A layer that was not recorded, special tokens where there are none.
        TypeError: An argument of another type.

    Example:
        >>> dataset = IndexedDataset(shards_dir, layer=6)
        >>> last = dataset[-1]
        >>> len(dataset), int(last["example_idx"])
        (33, 10)
        >>> batch = dataset[[0, 32]]
        >>> batch["token_idx"].tolist()
        [0, 2]
    """

    @checked
    def __init__(
        self,
        shards: str | os.PathLike[str],
        *,
        layer: LayerChoice,
        tokens: TokenChoice = "content",
    ) -> None:
        self._source = open_source(shards, layer, tokens)
        self.start()

    def start(self) -> None:
        """Begin without open shards, as a process does that was forked or was sent a copy."""
        end_with_process(self)
        self._shards: OpenShards | None = None
        self._blocks: Blocks | None = None
        self._end: Callable[[], object] = _nothing
        self._lock = threading.Lock()

    @property
    def metadata(self) -> Metadata:
        """What the directory holds."""
        return self._source.selection.metadata

    @property
    def d_model(self) -> int:
        """Values of one activation."""
        return self.metadata.d_model

    @property
    def n_samples(self) -> int:
        """How many rows there are; the same as ``len()``."""
        return self._source.selection.n_rows

    def __len__(self) -> int:
        return self.n_samples

    def __getitem__(self, index: SupportsIndex | Sequence[int]) -> Batch:
        """Return one row, or with a list or an array of numbers a batch.

        Raises:
            IndexError: A number out of range.
            TypeError: A slice, or something else that is no number.
            ShardReadError: The shard can't be read.
        """
        _refuse_slice(index)
        if isinstance(index, (Sequence, np.ndarray)):
            return self._rows(index)
        return self._row(self._checked(operator.index(index)))

    def __getitems__(self, indices: "Sequence[int] | npt.NDArray[np.integer[Any]]") -> WholeBatch:
        """Return several rows as one batch, in the order of their numbers given.

        torch's DataLoader calls this, and its ``default_collate`` makes tensors of the batch.

        Raises:
            IndexError: A number out of range.
            TypeError: Something that is no number.
            ShardReadError: A shard can't be read.
        """
        if "torch" in sys.modules:
            torch_module("collating")
        return WholeBatch(self._rows(indices))

    def _rows(self, indices: "Sequence[int] | npt.NDArray[np.integer[Any]]") -> Batch:
        rows = np.asarray(indices)
        if rows.size == 0:
            rows = rows.astype(np.int64)
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise TypeError(f"expected a list of numbers, found {rows.dtype} {list(rows.shape)}")
        n_rows = len(self)
        outside = rows[(rows < -n_rows) | (rows >= n_rows)]
        if outside.size:
            self._checked(int(outside[0]))
        rows = rows.astype(np.int64)  # before adding: a short type has no room for the sum
        return self._batch(np.where(rows < 0, rows + n_rows, rows))

    def _batch(self, rows: Rows) -> Batch:
        selection, n_rows = self._source.selection, len(rows)
        blocks = self._memory(n_rows)
        block = blocks.take()
        if n_rows:
            gathering = Gathering(selection, self._open(), Window(rows, None), [block], n_rows)
            _read_in_two(gathering) if n_rows >= _ROWS_FOR_TWO else gathering.read(0, 1)
        batch = arrays(self._source, rows, block.array(n_rows, selection.dtype))
        blocks.give_back(block)
        return batch

    def _memory(self, n_rows: int) -> Blocks:
        """Memory for batches of one size, since the next one is often as large."""
        with self._lock:
            if self._blocks is None or self._blocks.n_rows != n_rows:
                row_bytes = self._source.selection.row_bytes
                n_kept = min(3, _KEPT_BYTES // max(1, n_rows * row_bytes))
                self._blocks = Blocks(n_rows, row_bytes, n_kept)
            return self._blocks

    def _checked(self, index: int) -> int:
        n_rows = len(self)
        if not -n_rows <= index < n_rows:
            raise IndexError(f"expected a number from {-n_rows} below {n_rows}, found {index}")
        return index % n_rows

    def _row(self, row: int) -> Batch:
        """One row without arrays of one item on the way, which would take most of the time."""
        selection = self._source.selection
        example, layer, token, place = selection.place(row)
        shard, offset = divmod(place, selection.rows_per_shard)
        act = np.empty(self.d_model, selection.dtype)
        piece = Piece(act.data.cast("B"))
        self._open().read(Span(shard, offset * selection.row_bytes, piece))
        token -= self.metadata.cls_token
        batch = Batch(act=act, example_idx=np.int64(example), token_idx=np.int64(token))
        labels = self._source.labels
        if labels is not None:
            label = labels[example, token] if token >= 0 else UNLABELLED
            batch["token_label"] = np.uint8(label)
        if selection.layer == "all":
            batch["layer"] = np.int64(self.metadata.layers[layer])
        return batch

    def _open(self) -> OpenShards:
        if self._shards is None:
            with self._lock:
                if self._shards is None:
                    shards = self._source.open()
                    self._end = weakref.finalize(self, shards.close)
                    self._shards = shards
        return self._shards

    def close(self) -> None:
        """Close the shards and give back memory; the next access opens them again."""
        shards = self._shards
        if shards is not None:
            try:
                apart(shards.close)
            finally:
                if shards.is_open:  # an interrupt has cut it short
                    apart(shards.close)
        with self._lock:
            self._end()
            self._shards = self._blocks = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.start()


def _read_in_two(gathering: Gathering) -> None:
    parts = in_threads(
        lambda part: gathering.read(part, 2), range(2), n_threads=2, name="shardproof-reader"
    )
    try:
        for _ in parts:
            pass
    finally:
        parts.close()


def _refuse_slice(index: object) -> None:
    if isinstance(index, slice):
        raise TypeError("expected a number or a list of numbers, found a slice: give range(...)")


def _nothing() -> None:
    pass
