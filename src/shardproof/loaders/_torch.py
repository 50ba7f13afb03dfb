"""Tensors over the memory of batches, and loaders as torch's own DataLoader takes them."""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, cast

import torch
import torch.utils.data

from shardproof.loaders._source import Batch

__all__ = ["Divisible", "TorchDataset", "tensors"]


def tensors(batch: Batch, dtype: str) -> Batch:
    """Return a batch as tensors, without a copy."""
    found: dict[str, Any] = {name: torch.from_numpy(array) for name, array in batch.items()}
    if dtype == "bfloat16":
        found["act"] = found["act"].view(torch.bfloat16)
    return cast("Batch", found)


class Divisible(Iterable[Batch], Protocol):
    """Batches that several workers can share."""

    def of_worker(self, worker: int, n_workers: int) -> Iterable[Batch]:
        """Return the part of one of them."""
        ...


class TorchDataset(torch.utils.data.IterableDataset[Batch]):
    """A loader for ``torch.utils.data.DataLoader(..., batch_size=None)``.

    Each of its worker processes takes part as a rank of its own: no row comes twice, none is lost.
    """

    def __init__(self, loader: Divisible) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            return iter(self._loader)
        return iter(self._loader.of_worker(worker.id, worker.num_workers))
