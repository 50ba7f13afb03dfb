"""Which epoch a loader delivers next, where in it the loader is, and the state that says so."""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from shardproof.loaders.order._epoch_plan import Count, DeliveredPart, EpochPosition, RankShare
from shardproof.loaders.order._passes import Passes


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
