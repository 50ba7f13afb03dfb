"""What workers of torch's DataLoader agree on: which epoch a pass over the data is.

The process that has the DataLoader never iterates over the dataset, and torch tells the workers
nothing but to begin. So each pass, and which worker has come to its end, is written down in memory
that all of them share, whether they were forked or spawned, live for one pass or for many. A pass
is known by the seed that torch gives to its workers.
"""

import contextlib
import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np

from shardproof._base import files
from shardproof.loaders.order._epoch_plan import DeliveredPart, EpochPosition

_MAX_WORKERS = 1024
_MAX_PARTS = 64

_POSITION = np.dtype(
    [
        ("epoch", np.int64),
        ("n_batches", np.int64),
        ("n_before", np.int64),
        ("before", np.int64, (_MAX_PARTS, 2)),
    ]
)
_TABLE = np.dtype(
    [
        ("wish", np.int64),  # how often it was chosen where to begin
        ("start", _POSITION),  # the last choice
        ("number", np.int64),  # how many passes there were
        ("of_wish", np.int64),  # of the last pass, as all below
        ("seed", np.int64),
        ("turn", np.int64),
        ("n_workers", np.int64),
        ("position", _POSITION),
        ("joined", np.int64, _MAX_WORKERS),  # the number of the latest pass that each worker began
        ("finished", np.int64, _MAX_WORKERS),  # and of the latest of which it had its last batch
        ("loaded", np.int64, _MAX_WORKERS),  # the epoch of the state that each worker began with
        ("is_over", np.bool_, _MAX_WORKERS),  # whether nothing of that was left for it
    ]
)


class WorkerTurn(NamedTuple):
    """One worker's turn at a pass over the data."""

    seed: int  # the same for all workers; another one for each pass, unless the workers persist
    number: int  # of passes that this worker had before
    worker: int
    n_workers: int


class Passes:
    """Lets workers agree on epochs, by a table in memory that forks and spawned processes share."""

    def __init__(self, content: bytes = b"") -> None:
        fd = files.nameless()
        os.truncate(fd, _TABLE.itemsize)
        os.pwrite(fd, content, 0)
        self._open(fd)

    def _open(self, fd: int) -> None:
        weakref.finalize(self, os.close, fd)
        self._fd = fd
        self._memory = mmap.mmap(fd, _TABLE.itemsize)
        self._table: Any = np.frombuffer(self._memory, _TABLE)[0]

    def begin_with(self, position: EpochPosition) -> None:
        """Begin the next pass at a position, whatever was delivered until now."""
        with self._locked():
            self._write("start", position)
            self._table["wish"] += 1

    def enter(
        self, turn: WorkerTurn, loaded: EpochPosition | None = None, *, is_over: bool = False
    ) -> EpochPosition:
        """Return where a pass begins, the same for each of its workers."""
        if turn.n_workers > _MAX_WORKERS:
            raise ValueError(f"num_workers: expected at most {_MAX_WORKERS}")
        with self._locked():
            if not self._is_present(turn):
                start = loaded
                if start is None and self._table["of_wish"] != self._table["wish"]:
                    start = self._read("start")
                if start is None:
                    last = self._read("position")
                    start = EpochPosition(last.epoch + 1) if self._is_finished() else last
                self._write("position", start)
                self._table["number"] += 1
                self._table["of_wish"] = self._table["wish"]
                self._table["seed"], self._table["turn"] = turn.seed, turn.number
                self._table["n_workers"] = turn.n_workers
            self._table["joined"][turn.worker] = self._table["number"]
            position = self._read("position")
            self._table["loaded"][turn.worker] = (loaded or position).epoch
            self._table["is_over"][turn.worker] = is_over
            return position

    def after_end(self, turn: WorkerTurn) -> EpochPosition | None:
        """Return what comes for a worker that was told to begin where its part of an epoch ends."""
        # The next epoch, if others were told of that or have nothing left either; else nothing.
        with self._locked():
            joined = self._table["joined"][: turn.n_workers]
            if not self._is_of(turn) or not (joined == self._table["number"]).all():
                return None
            epochs = self._table["loaded"][: turn.n_workers]
            is_over = bool(self._table["is_over"][: turn.n_workers].all())
            epoch = max(int(epochs.max()), int(epochs[turn.worker]) + is_over)
            if epoch == epochs[turn.worker]:
                return None
            self._write("position", EpochPosition(epoch))
            return EpochPosition(epoch)

    def finish(self, turn: WorkerTurn) -> None:
        """Write down that a worker had its last batch."""
        with self._locked():
            if self._is_of(turn):
                self._table["finished"][turn.worker] = self._table["number"]

    def last_finished(self) -> tuple[int, int] | None:
        """Return number and epoch of the last pass, if all its workers had their last batch."""
        # None also if it was chosen after that where to begin.
        with self._locked():
            if self._table["of_wish"] != self._table["wish"] or not self._is_finished():
                return None
            return int(self._table["number"]), int(self._table["position"]["epoch"])

    def _is_present(self, turn: WorkerTurn) -> bool:
        """Whether this turn is in the last pass, or in one before it."""
        table = self._table
        if table["seed"] != turn.seed or table["turn"] < turn.number or not table["number"]:
            return False
        # With a seed that is set anew for each pass, workers of two passes look the same.
        return bool(table["turn"] > turn.number or table["joined"][turn.worker] != table["number"])

    def _is_of(self, turn: WorkerTurn) -> bool:
        return bool(self._table["seed"] == turn.seed and self._table["turn"] == turn.number)

    def _is_finished(self) -> bool:
        table = self._table
        n_workers = int(table["n_workers"])
        return bool(n_workers and (table["finished"][:n_workers] == table["number"]).all())

    def _read(self, name: str) -> EpochPosition:
        position = self._table[name]
        before = position["before"][: int(position["n_before"])].tolist()
        parts = tuple(DeliveredPart(world_size, n_batches) for world_size, n_batches in before)
        return EpochPosition(int(position["epoch"]), parts, int(position["n_batches"]))

    def _write(self, name: str, position: EpochPosition) -> None:
        n_parts = len(position.before)
        if n_parts > _MAX_PARTS:
            raise ValueError(f"delivered: expected at most {_MAX_PARTS} parts, found {n_parts}")
        row = self._table[name]
        row["epoch"], row["n_batches"] = position.epoch, position.n_batches
        row["n_before"] = n_parts
        for number, part in enumerate(position.before):
            row["before"][number] = part.world_size, part.n_batches

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold a lock between processes, which the kernel takes from one that dies."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            return {"fd": DupFd(self._fd)}
        with self._locked():
            return {"content": bytes(self._memory)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "fd" in state:
            self._open(state["fd"].detach())
        else:
            self.__init__(state["content"])  # type: ignore[misc]
