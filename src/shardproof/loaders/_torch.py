"""Tensors over the memory of batches, and loaders as torch's own DataLoader takes them."""

import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import torch
import torch.utils.data
from torch.utils.data._utils.collate import default_collate_fn_map

from shardproof.loaders.io._row_source import Batch, WholeBatch
from shardproof.loaders.order._epoch_plan import EpochPosition
from shardproof.loaders.order._epochs import Passes, WorkerTurn


def tensors(
    batch: Batch, dtype: str, wanted: str | None = None, *, pin_memory: bool = False
) -> Batch:
    """Return a batch as tensors over its memory, unless they are cast."""
    found = {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}
    if pin_memory:
        act = found.pop("act")
        # As a part of the tensor whose memory this is: torch keeps that while a copy is under way.
        whole = batch["act"].base.base[: act.nbytes]
        found = {name: tensor.pin_memory() for name, tensor in found.items()}
        found["act"] = whole.view(act.dtype).reshape(act.shape)
    if dtype == "bfloat16":
        found["act"] = found["act"].view(torch.bfloat16)
    if wanted is not None:
        found["act"] = found["act"].to(getattr(torch, wanted))
    return cast("Batch", found)


# What torch's own collating looks up by the type of its first sample.
default_collate_fn_map[WholeBatch] = lambda batch, **_: {
    name: torch.as_tensor(value) for name, value in batch.items()
}

_SAY_HOW_MANY = "say torch_dataset(num_workers=...), as many as the DataLoader has"

_ON_HOST = (
    "device: worker processes deliver on the host: leave it out, and pass pin_memory=True to the "
    "DataLoader; or let threads read, by num_workers=0"
)

_FETCHING_AHEAD = ("lightning.pytorch", "pytorch_lightning")

_LEFT_OUT = (
    "Lightning fetches one batch ahead of what has no length, as this torch_dataset() has none. A "
    "StatefulDataLoader over it that is resumed from Lightning's checkpoint leaves that batch out: "
    + _SAY_HOW_MANY
)


class TorchDataset(torch.utils.data.IterableDataset[Batch]):
    """A loader for ``torch.utils.data.DataLoader(..., batch_size=None)``.

    Each of its worker processes takes part as a rank of its own: no row comes twice, none is lost.
    The workers agree by a table of passes.
    """

    # The loader is a `BatchLoader`, whose module imports this one.

    def __init__(self, loader: Any, passes: Passes, n_workers: int | None) -> None:
        self._loader, self._passes, self._n_workers = loader, passes, n_workers
        self._part: Any = None  # of this worker, once it has one
        self._state: Mapping[str, Any] | None = None
        self._n_passes = 0
        # torch counts on from what was delivered before a load, across the end of an epoch too.
        warnings.filterwarnings("ignore", rf"Length of IterableDataset <{re.escape(__name__)}\.")

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        """How many batches all workers together deliver in an epoch."""
        if self._n_workers is None:
            if not sys.modules.keys().isdisjoint(_FETCHING_AHEAD):
                warnings.warn(_LEFT_OUT, stacklevel=2)
            raise TypeError(f"no length: {_SAY_HOW_MANY}")
        n_workers = max(1, self._n_workers)
        parts = (self._loader.of_worker(n, n_workers, EpochPosition(0)) for n in range(n_workers))
        return sum(part.n_batches for part in parts)

    def __iter__(self) -> Iterator[Batch]:
        worker = torch.utils.data.get_worker_info()
        n_workers = 0 if worker is None else worker.num_workers
        if self._n_workers not in (None, n_workers):
            raise ValueError(
                f"num_workers: expected {self._n_workers}, as passed to torch_dataset(), found "
                f"{n_workers}: {_SAY_HOW_MANY}"
            )
        if worker is None:
            return iter(self._loader)
        if not self._loader.is_on_host:
            raise ValueError(_ON_HOST)
        turn = WorkerTurn(worker.seed - worker.id, self._n_passes, worker.id, n_workers)
        self._n_passes += 1
        state, self._state = self._state, None
        if state is None:
            return self._delivered(self._part_of(turn, self._passes.enter(turn)), turn)
        part = self._part_of(turn, EpochPosition(0))
        part.load_state_dict(state)
        part.set_epoch(part.epoch)  # the rest of that one, be it nothing: others may have more
        is_over = part.n_left <= 0
        self._passes.enter(turn, EpochPosition(part.epoch), is_over=is_over)
        return self._after_end(turn) if is_over else self._delivered(part, turn)

    def _part_of(self, turn: WorkerTurn, start: EpochPosition) -> Any:
        self._part = self._loader.of_worker(turn.worker, turn.n_workers, start)
        return self._part

    def _after_end(self, turn: WorkerTurn) -> Iterator[Batch]:
        """Decide with the first batch, which torch asks for when all workers have entered."""
        start = self._passes.after_end(turn)
        if start is None:
            self._passes.finish(turn)
        else:
            yield from self._delivered(self._part_of(turn, start), turn)

    def _delivered(self, part: Any, turn: WorkerTurn) -> Iterator[Batch]:
        """Write down the end of a pass as soon as this worker has nothing more to deliver."""
        n_left = part.n_left
        if n_left <= 0:
            self._passes.finish(turn)

        def until_the_last() -> Iterator[Batch]:
            for number, batch in enumerate(part, start=1):
                if number == n_left:
                    self._passes.finish(turn)
                yield batch

        return until_the_last()

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is; in a worker, where its part is."""
        state: dict[str, Any] = (self._part or self._loader).state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration after this state."""
        if torch.utils.data.get_worker_info() is None:
            self._loader.load_state_dict(state)
        else:
            self._state = state
