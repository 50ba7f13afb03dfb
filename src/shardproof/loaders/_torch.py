"""Tensors over the memory of batches, and loaders as torch's own DataLoader takes them."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self, cast

import torch
import torch.utils.data
from torch.utils.data._utils.collate import default_collate_fn_map

from shardproof.loaders._passes import Passes, Turn
from shardproof.loaders._source import Batch, WholeBatch
from shardproof.loaders._state import Place

__all__ = ["Divisible", "TorchDataset", "tensors"]


def tensors(batch: Batch, dtype: str) -> Batch:
    """Return a batch as tensors, without a copy."""
    found: dict[str, Any] = {name: torch.from_numpy(array) for name, array in batch.items()}
    if dtype == "bfloat16":
        found["act"] = found["act"].view(torch.bfloat16)
    return cast("Batch", found)


def _converted(batch: WholeBatch, **_: object) -> dict[str, Any]:
    return {name: torch.from_numpy(array) for name, array in batch.items()}


default_collate_fn_map[WholeBatch] = _converted


class Divisible(Protocol):
    """Batches that several workers can share, as loaders are."""

    @property
    def epoch(self) -> int:
        """Which epoch was delivered last, or chosen since then."""
        ...

    @property
    def n_left(self) -> int:
        """How many batches the next iteration delivers."""
        ...

    def __iter__(self) -> Iterator[Batch]:
        """Deliver them."""
        ...

    def of_worker(self, worker: int, n_workers: int, start: Place) -> Self:
        """Return the part of one of them."""
        ...

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Return where it is."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin there."""
        ...


class TorchDataset(torch.utils.data.IterableDataset[Batch]):
    """A loader for ``torch.utils.data.DataLoader(..., batch_size=None)``.

    Each of its worker processes takes part as a rank of its own: no row comes twice, none is lost.
    """

    def __init__(self, loader: Divisible, passes: Passes) -> None:
        self._loader, self._passes = loader, passes
        self._part: Divisible | None = None  # of this worker, once it has one
        self._state: Mapping[str, Any] | None = None
        self._n_passes = 0

    def __iter__(self) -> Iterator[Batch]:
        if torch.utils.data.get_worker_info() is None:
            return iter(self._loader)
        turn = self._next_turn()
        state, self._state = self._state, None
        if state is None:
            return self._delivered(self._part_of(turn, self._passes.enter(turn)), turn)
        return self._resumed(state, turn)

    def _next_turn(self) -> Turn:
        worker = torch.utils.data.get_worker_info()
        turn = Turn(worker.seed - worker.id, self._n_passes, worker.id, worker.num_workers)
        self._n_passes += 1
        return turn

    def _part_of(self, turn: Turn, start: Place) -> Divisible:
        self._part = self._loader.of_worker(turn.worker, turn.n_workers, start)
        return self._part

    def _resumed(self, state: Mapping[str, Any], turn: Turn) -> Iterator[Batch]:
        part = self._part_of(turn, Place(0))
        part.load_state_dict(state)
        part.set_epoch(part.epoch)  # the rest of that one, be it nothing: others may have more
        self._passes.enter(turn, Place(part.epoch))
        return self._delivered(part, turn)

    def _delivered(self, part: Divisible, turn: Turn) -> Iterator[Batch]:
        """Write down the end of a pass as soon as this worker has nothing more to deliver."""
        n_left = part.n_left
        if n_left <= 0:
            self._passes.finish(turn)
        return self._until_the_last(part, turn, n_left)

    def _until_the_last(self, part: Divisible, turn: Turn, n_left: int) -> Iterator[Batch]:
        for number, batch in enumerate(part, start=1):
            if number == n_left:
                self._passes.finish(turn)
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is; in a worker, where its part is."""
        return (self._part or self._loader).state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin after this state."""
        if torch.utils.data.get_worker_info() is None:
            self._loader.load_state_dict(state)
        else:
            self._state = state
