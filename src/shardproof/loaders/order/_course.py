"""Which epoch comes next, and where in it a loader is."""

from shardproof.loaders.order._dealing import Dealing
from shardproof.loaders.order._passes import Passes
from shardproof.loaders.order._state import Place

__all__ = ["Course"]


class Course:
    """The epochs of a loader: after one that was finished comes the next one.

    Args:
        dealing: What is delivered.
        start: Where the first iteration begins.
        is_pinned: Whether that begins there even if nothing is left of the epoch.
    """

    def __init__(self, dealing: Dealing, start: Place, *, is_pinned: bool = False) -> None:
        self._dealing, self._is_pinned = dealing, is_pinned
        self._start = self._place = start
        self._passes: Passes | None = None
        self._n_heard = self._n_choices = 0

    @property
    def n_choices(self) -> int:
        """How often it was chosen where to begin: iterations from before that count no more."""
        return self._n_choices

    @property
    def place(self) -> Place:
        """Where the iteration is that delivered last, or the next one was told to begin."""
        self._hear()
        return self._place

    @property
    def next_start(self) -> Place:
        """Where the next iteration begins: after an abandoned one, where that one began."""
        self._hear()
        if self._is_pinned or not self._is_over():
            return self._start
        return Place(self._place.epoch + 1)

    def begin(self, start: Place, n_choices: int) -> None:
        """An iteration begins."""
        if n_choices == self._n_choices:
            self._start = self._place = start
            self._is_pinned = False

    def arrive(self, place: Place, n_choices: int, *, is_last: bool) -> None:
        """An iteration has come to a place, the last of its epoch or not."""
        if n_choices == self._n_choices:
            self._place = place
            if is_last:
                self._tell()

    def choose(self, epoch: int) -> None:
        """Let the next iteration deliver an epoch; that of this moment begins where it began."""
        self._hear()
        is_finished = self._place is not self._start and self._is_over()
        if is_finished or epoch != self._place.epoch:
            self._choose(Place(epoch))
        self._is_pinned = True
        self._tell()

    def resume(self, place: Place) -> None:
        """Let the next iteration begin at a place, or after an end with the next epoch."""
        self._hear()
        self._choose(place)
        self._tell()

    def _choose(self, start: Place) -> None:
        self._start = self._place = start
        self._is_pinned = False
        self._n_choices += 1

    def shared(self) -> Passes:
        """Return what workers of this loader agree by."""
        if self._passes is None:
            self._passes = Passes()
            self._tell()
        return self._passes

    def _is_over(self) -> bool:
        """Whether nothing is left of the epoch: for this rank, or after a load for any."""
        if self._place is self._start:
            return self._dealing.is_end(self._place)
        return self._dealing.n_left(self._place) <= 0

    def _tell(self) -> None:
        """Let workers begin where the next iteration would."""
        if self._passes is not None:
            self._passes.begin_with(self.next_start)

    def _hear(self) -> None:
        """Take over which epoch workers have finished."""
        last = None if self._passes is None else self._passes.last_finished()
        if last is not None and last[0] > self._n_heard:
            self._n_heard, epoch = last
            self._start = Place(epoch)
            self._place = Place(epoch, n_batches=self._dealing.counted().n_steps)
