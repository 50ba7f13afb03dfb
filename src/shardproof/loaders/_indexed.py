"""Rows by their number."""

import operator
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from shardproof._base.arguments import checked
from shardproof._base.work import apart
from shardproof.loaders._delivery import DeviceName, Dtype, delivery_of, torch_module
from shardproof.loaders._reader import DirectoryReader
from shardproof.loaders.io._crew import Helpers
from shardproof.loaders.io._memory import BufferPool, Contiguous
from shardproof.loaders.io._open_shards import OpenShards, ShardRead
from shardproof.loaders.io._read_ahead import threads_that_help
from shardproof.loaders.io._read_plan import ReadPlan
from shardproof.loaders.io._row_source import UNLABELLED, Batch, WholeBatch, batches_of, open_source
from shardproof.loaders.order._epoch_plan import Window
from shardproof.loaders.order._selection import Framework, LayerChoice, TokenChoice

_MOST_THREADS = 4  # for one batch: a part of 2 MiB each takes them a millisecond
_KEPT_BYTES = 2**27  # of memory for the next batches: three, unless they are larger than that


class IndexedDataset(DirectoryReader):
    """Reads activations of a saev directory by number, in the file's order: example, layer, token.

    A map-style dataset: ``torch.utils.data.DataLoader(dataset, batch_size=...)`` asks it for whole
    batches (``__getitems__``), which need no collating. It may be sent to other processes, each of
    which opens the shards for itself.

    Args:
        shards_dir: The directory.
        layer: A recorded layer, or ``"all"``.
        tokens: ``"content"``, ``"special"`` or ``"all"``.
        framework: ``"numpy"`` for arrays, ``"torch"`` for tensors over the same memory.
        device: Where the tensors are: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``.
        dtype: Of ``act``, as for `OrderedDataLoader`.
        group: As for `OrderedDataLoader`.

    Raises:
        ShardValidationError: Something in the directory is not as expected.
        ManifestError: Its manifest can't be read.
        ValueError: A layer that was not recorded, special tokens where there are none, a device
            that is not there.
        TypeError: An argument of another type.
        ModuleNotFoundError: ``framework="torch"``, and there is no torch.

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
        shards_dir: str | os.PathLike[str],
        *,
        layer: LayerChoice,
        tokens: TokenChoice = "content",
        framework: Framework = "numpy",
        device: DeviceName = "cpu",
        dtype: Dtype | None = None,
        group: Any = None,
    ) -> None:
        self._delivery = delivery_of(framework, device, dtype)
        super().__init__(open_source(shards_dir, layer, tokens, group))

    def _start(self) -> None:
        super()._start()
        self._shards: OpenShards | None = None
        self._helpers: Helpers | None = None
        self._pool: BufferPool | None = None
        self._lock = threading.Lock()

    def _arguments(self) -> dict[str, object]:
        names = ("framework", "device", "dtype")
        return super()._arguments() | {name: getattr(self._delivery, name) for name in names}

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
        if isinstance(index, slice):  # type: ignore[unreachable] # type checkers refuse it
            raise TypeError(
                "expected a number or a list of numbers, found a slice: give range(...)"
            )
        if isinstance(index, (Sequence, np.ndarray)):
            return self._rows(index)
        return self._delivered(self._row(self._checked(operator.index(index))))

    def __getitems__(self, indices: "Sequence[int] | npt.NDArray[np.integer[Any]]") -> WholeBatch:
        """Return several rows as one batch, in the order of their numbers given; raises as for one.

        torch's DataLoader calls this, and its ``default_collate`` makes tensors of the batch.
        """
        if "torch" in sys.modules:
            torch_module("collating")
        return WholeBatch(self._rows(indices))

    def _rows(self, indices: "Sequence[int] | npt.NDArray[np.integer[Any]]") -> Batch:
        rows = np.asarray(indices)
        if rows.size == 0:
            rows = rows.astype(np.int64)
        if rows.dtype.kind in "Of" and rows.ndim == 1:
            for index in indices if all(isinstance(each, int) for each in indices) else ():
                self._checked(int(index))  # one is out of range of numpy, too
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise TypeError(f"expected a list of numbers, found {rows.dtype} {list(rows.shape)}")
        n_rows = len(self)
        outside = rows[(rows < -n_rows) | (rows >= n_rows)]
        if outside.size:
            self._checked(int(outside[0]))
        rows = rows.astype(np.int64)  # before adding: a short type has no room for the sum
        rows = np.where(rows < 0, rows + n_rows, rows)
        selection, n_rows = self._source.selection, len(rows)
        with self._lock:  # memory for batches of one size, since the next one is often as large
            if self._pool is None or self._pool.n_rows != n_rows:
                n_kept = min(3, _KEPT_BYTES // max(1, n_rows * selection.row_bytes))
                self._pool = BufferPool(n_rows, selection.row_bytes, n_kept, self._delivery.memory)
            pool = self._pool
        buffer = pool.take()
        if n_rows:
            reads = ReadPlan.of(selection, Window(rows, None), n_rows).into([buffer])
            self._open().read_each(reads, self._helpers)
        (batch,) = batches_of(self._source, rows, [buffer], n_rows)
        pool.give_back(buffer)
        return self._delivered(batch)

    def _delivered(self, batch: Batch) -> Batch:
        """Return a batch, or a row, where it is wanted: its memory may be filled again."""
        if self._delivery.is_on_host:
            return self._delivery.arrays(batch, self.metadata.dtype)
        transfer = self._delivery.open_device(self.metadata.dtype).send(batch)
        transfer.synchronize()
        return transfer.receive()

    def _checked(self, index: int) -> int:
        n_rows = len(self)
        if not -n_rows <= index < n_rows:
            raise IndexError(f"expected a number from {-n_rows} below {n_rows}, found {index}")
        return index % n_rows

    def _row(self, row: int) -> Batch:
        """Read one row, without arrays of one item on the way: they would take most of the time."""
        selection = self._source.selection
        example, layer, token, place = selection.place(row)
        shard, offset = divmod(place, selection.rows_per_shard)
        act = np.empty(self.d_model, selection.dtype)
        destination = Contiguous(act.data.cast("B"))
        self._open().read(ShardRead(shard, offset * selection.row_bytes, destination))
        token -= self.metadata.cls_token
        batch = Batch(act=act, example_idx=np.int64(example), token_idx=np.int64(token))
        labels = self._source.labels
        if labels is not None:
            batch["token_label"] = np.uint8(labels[example, token] if token >= 0 else UNLABELLED)
        if selection.layer == "all":
            batch["layer"] = np.int64(self.metadata.layers[layer])
        return batch

    def _open(self) -> OpenShards:
        if self._shards is None:
            with self._lock:
                if self._shards is None:
                    shards = self._source.open()
                    n_threads = min(threads_that_help(self._source.root), _MOST_THREADS)
                    self._helpers = Helpers("shardproof-reader", n_threads - 1)
                    self._shards = shards
        return self._shards

    def close(self) -> None:
        """Close the shards and give back memory; the next access opens them again."""
        apart(lambda _: self._close())

    def _close(self) -> None:
        with self._lock:
            shards, helpers = self._shards, self._helpers
            self._shards = self._helpers = self._pool = None
        if helpers is not None:
            helpers.end()
        if shards is not None:
            shards.close()

    def __del__(self) -> None:
        """End the helpers; shards that nothing refers to are closed."""
        helpers = getattr(self, "_helpers", None)  # there are none where this was not made
        if helpers is not None:
            helpers.end()

    def __getstate__(self) -> dict[str, Any]:
        return {"_source": self._source, "_delivery": self._delivery}
