"""Which epoch comes next, for a loader and for those that share it; and the state that says so.

The process that has a DataLoader of torch never iterates over the dataset, and torch tells the
workers nothing but to begin. So passes are written down in memory that all of them share.
"""

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterator
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, Literal, NamedTuple

import msgspec

from shardproof._base import files
from shardproof.loaders.order._epoch_plan import DeliveredPart, EpochPosition, RankShare
from shardproof.manifest import Count


class WorkerTurn(NamedTuple):
    """One worker's turn at a pass over the data."""

    seed: int  # the same for all workers; another one for each pass, unless the workers persist
    number: int  # of passes that this worker had before
    worker: int
    n_workers: int


class _Worker(msgspec.Struct):
    """What is known of one worker; passes are counted from 1."""

    joined: int = 0  # the latest pass that it began
    finished: int = 0  # and the latest of which it had its last batch
    loaded: int = 0  # the epoch of the state that it began with
    is_over: bool = False  # whether nothing of that was left for it


class _PassTable(msgspec.Struct):
    """What all workers know of the passes."""

    wish: int = 0  # how often it was chosen where to begin
    start: EpochPosition = EpochPosition(0)  # the last choice
    number: int = 0  # how many passes there were
    of_wish: int = 0  # of the last pass, as all below
    seed: int = 0
    turn: int = 0
    n_workers: int = 0
    position: EpochPosition = EpochPosition(0)
    workers: dict[int, _Worker] = {}

    def worker(self, number: int) -> _Worker:
        return self.workers.get(number, _Worker())

    @property
    def is_finished(self) -> bool:
        """Whether all workers of the last pass had their last batch."""
        workers = [self.worker(number) for number in range(self.n_workers)]
        return bool(workers) and all(each.finished == self.number for each in workers)

    def is_of(self, turn: WorkerTurn) -> bool:
        """Whether this turn is the last pass's."""
        return (self.seed, self.turn) == (turn.seed, turn.number)

    def has(self, turn: WorkerTurn) -> bool:
        """Whether this turn is in the last pass, or in one before it."""
        if self.seed != turn.seed or self.turn < turn.number or not self.number:
            return False
        # With a seed that is set anew for each pass, workers of two passes look the same.
        return self.turn > turn.number or self.worker(turn.worker).joined != self.number


class Passes:
    """Lets workers agree on epochs, by a table in memory that forks and spawned processes share."""

    def __init__(self, content: bytes = b"{}") -> None:
        fd = files.nameless()
        os.pwrite(fd, content, 0)
        self._open(fd)

    def _open(self, fd: int) -> None:
        weakref.finalize(self, os.close, fd)
        self._fd = fd

    def begin_with(self, position: EpochPosition) -> None:
        """Begin the next pass at a position, whatever was delivered until now."""
        with self._locked() as table:
            table.start = position
            table.wish += 1

    def enter(
        self, turn: WorkerTurn, loaded: EpochPosition | None = None, *, is_over: bool = False
    ) -> EpochPosition:
        """Return where a pass begins, the same for each of its workers."""
        with self._locked() as table:
            if not table.has(turn):
                if loaded is not None:
                    table.position = loaded
                elif table.of_wish != table.wish:
                    table.position = table.start
                elif table.is_finished:
                    table.position = EpochPosition(table.position.epoch + 1)
                table.number += 1
                table.of_wish = table.wish
                table.seed, table.turn, table.n_workers = turn.seed, turn.number, turn.n_workers
            worker = table.workers.setdefault(turn.worker, _Worker())
            worker.joined, worker.is_over = table.number, is_over
            worker.loaded = (loaded or table.position).epoch
            return table.position

    def after_end(self, turn: WorkerTurn) -> EpochPosition | None:
        """Return what comes for a worker that was told to begin where its part of an epoch ends."""
        # The next epoch, if others were told of that or have nothing left either; else nothing.
        with self._locked() as table:
            workers = [table.worker(number) for number in range(turn.n_workers)]
            if not table.is_of(turn) or any(each.joined != table.number for each in workers):
                return None
            own = workers[turn.worker].loaded
            more = own + all(each.is_over for each in workers)
            epoch = max(more, *(each.loaded for each in workers))
            if epoch == own:
                return None
            table.position = EpochPosition(epoch)
            return table.position

    def finish(self, turn: WorkerTurn) -> None:
        """Write down that a worker had its last batch."""
        with self._locked() as table:
            if table.is_of(turn):
                table.workers.setdefault(turn.worker, _Worker()).finished = table.number

    def last_finished(self) -> tuple[int, int] | None:
        """Return number and epoch of the last pass, if all its workers had their last batch."""
        # None also if it was chosen after that where to begin.
        with self._locked() as table:
            is_last = table.of_wish == table.wish and table.is_finished
            return (table.number, table.position.epoch) if is_last else None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[_PassTable]:
        """Yield the table under a lock between processes, which the kernel takes from the dead."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            content = os.pread(self._fd, os.fstat(self._fd).st_size, 0)
            table = msgspec.json.decode(content, type=_PassTable)
            yield table
            # In one piece, with spaces where it was longer: a worker may die at any moment.
            after = msgspec.json.encode(table).ljust(len(content))
            if after != content:
                os.pwrite(self._fd, after, 0)
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is not None:
            return {"fd": DupFd(self._fd)}
        with self._locked() as table:
            return {"content": msgspec.json.encode(table)}

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
            return self._position.n_batches >= self._share.counted(self._position.before).n_steps
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
