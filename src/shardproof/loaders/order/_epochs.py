"""Which epoch comes next, for a loader and for those that share it; and the state that says so.

The process that has a DataLoader of torch never iterates over the dataset, and torch tells the
workers nothing but to begin. So each pass over the data, and which worker has come to its end, is
written down in memory that all of them share, whether they were forked or spawned, live for one
pass or for many. A pass is known by the seed that torch gives to its workers.
"""

import contextlib
import fcntl
import mmap
import os
import weakref
from collections.abc import Iterator
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from shardproof._base import files
from shardproof.loaders.order._epoch_plan import Count, DeliveredPart, EpochPosition, RankShare

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


class LoaderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `state_dict` returns: of which loader it is, and where in which epoch that was."""

    loader: str
    directory: str
    layer: int | Literal["all"]
    tokens: str
    batch_size: int
    drop_last: bool
    even_batches: bool
    order: dict[str, Any]
    epoch: Count
    delivered: list[DeliveredPart]
    version: Literal[1] = 1


class EpochCursor:
    """Goes through the epochs of a loader: after one that was finished comes the next one."""

    def __init__(self, share: RankShare, start: EpochPosition) -> None:
        self._share, self._is_pinned = share, True
        self._start = self._position = start
        self._passes: Passes | None = None
        self._n_heard = self.n_choices = 0

    @property
    def position(self) -> EpochPosition:
        """Where the iteration is that delivered last, or the next one was told to begin."""
        self._hear()
        return self._position

    @property
    def next_start(self) -> EpochPosition:
        """Where the next iteration begins: after an abandoned one, where that one began."""
        self._hear()
        if self._is_pinned or not self._is_over():
            return self._start
        return EpochPosition(self._position.epoch + 1)

    def epochs(self, n: int) -> Iterator[int]:
        """Yield each epoch that is left of ``n``; what a round leaves of it is left out."""
        while (epoch := self.next_start.epoch) < n:
            self.choose(epoch)
            n_choices = self.n_choices
            yield epoch
            if n_choices == self.n_choices and epoch == self.next_start.epoch:
                self.choose(epoch + 1)

    def begin(self, start: EpochPosition, n_choices: int) -> None:
        """Note that an iteration begins."""
        if n_choices == self.n_choices:
            self._start = self._position = start
            self._is_pinned = False

    def arrive(self, position: EpochPosition, n_choices: int, *, is_last: bool) -> None:
        """Note that an iteration has come to a position, the last of its epoch or not."""
        if n_choices == self.n_choices:
            self._position = position
            if is_last:
                self._tell()

    def choose(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; that of this moment begins where it began."""
        self._hear()
        is_finished = self._position is not self._start and self._is_over()
        if is_finished or epoch != self._position.epoch:
            self._choose(EpochPosition(epoch))
        self._is_pinned = True
        self._tell()

    def resume(self, position: EpochPosition) -> None:
        """Begin the next iteration at a position, or after an end with the next epoch."""
        self._hear()
        self._choose(position)
        self._tell()

    def _choose(self, start: EpochPosition) -> None:
        self._start = self._position = start
        self._is_pinned = False
        self.n_choices += 1

    def shared(self) -> Passes:
        """Return the table by which the workers of this loader agree."""
        if self._passes is None:
            self._passes = Passes()
            self._tell()
        return self._passes

    def _is_over(self) -> bool:
        """Whether nothing is left of the epoch: for this rank, or after a load for any."""
        if self._position is self._start:
            return self._share.is_end(self._position)
        return self._share.n_left(self._position) <= 0

    def _tell(self) -> None:
        """Begin the passes of workers where the next iteration would."""
        if self._passes is not None:
            self._passes.begin_with(self.next_start)

    def _hear(self) -> None:
        """Take over which epoch workers have finished."""
        last = None if self._passes is None else self._passes.last_finished()
        if last is not None and last[0] > self._n_heard:
            self._n_heard, epoch = last
            self._is_pinned = False
            self._start = EpochPosition(epoch)
            self._position = EpochPosition(epoch, n_batches=self._share.counted().n_steps)
