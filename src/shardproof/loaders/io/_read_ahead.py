"""One iteration: stretches of windows are read ahead by threads, and delivered as batches."""

import dataclasses
import functools
import threading
from collections.abc import Callable, Generator, Iterator

from shardproof._base.fanout import available_cpus
from shardproof._base.mounts import LOCAL, mount_of
from shardproof.loaders.io._crew import Crew
from shardproof.loaders.io._memory import Buffer, BufferPool
from shardproof.loaders.io._open_shards import OpenShards, ShardReads
from shardproof.loaders.io._read_plan import ReadPlan
from shardproof.loaders.io._row_source import Batch, RowSource, batches_of
from shardproof.loaders.order._epoch_plan import EpochPlan, RankShare, Window
from shardproof.loaders.order._selection import Rows

_MOST_THREADS = 1024  # more would take longer to start than they save

_FEW, _MANY = 2, 8
"""How many threads read unless a number is given: fewer than these leave a batch waiting, and each
more takes memory for a batch."""

_ROWS_AT_ONCE = 4096
_BYTES_AT_ONCE = 2**24
"""What a thread reads for several batches: with less, each batch takes longer around the reading
than in it."""


def threads_that_help(directory: str) -> int:
    """Return one for each processor, within limits; where reads wait for a network, the most."""
    kind, *_ = mount_of(directory)
    return max(_FEW, min(available_cpus(), _MANY)) if kind in LOCAL else _MANY


@dataclasses.dataclass(frozen=True, slots=True)
class ReadAhead:
    """Reads what one iteration delivers to a rank, some stretches ahead, by threads."""

    source: RowSource
    plan: EpochPlan
    rank: int
    workers: int
    pool: BufferPool

    @property
    def _n_threads(self) -> int:
        """How many threads read: no more than rows, nor than a process can well have."""
        return min(self.workers, _MOST_THREADS, max(1, self.plan.n_rows(self.rank)))

    def batches(self, first: int) -> Generator[Batch, None, None]:
        """Yield the batches from one on; threads and descriptors last as long as the generator."""
        n_threads = self._n_threads
        shards = self.source.open(n_threads)
        crew = Crew("shardproof-reader", at_end=shards.close)
        try:
            # One stretch, in its parts, is read while the one before is delivered.
            for batches in crew.results(self._reads(shards, first), n_threads, n_threads + 1):
                batches.reverse()
                while batches:  # popped, so that its memory is the caller's alone
                    yield batches.pop()
        finally:
            crew.is_over = True
            crew.end()

    def _reads(self, shards: OpenShards, first: int) -> Iterator[Callable[[], list[Batch]]]:
        """Yield what reads each part of each stretch, in order, from that of a batch on."""
        n_parts = self._n_threads if self.plan.window_rows > self.plan.batch_size else 1
        stretches = (StretchRead(self, shards, *each) for each in self._stretches(first))
        begun = next(stretches, None)
        while begun is not None:
            following = next(stretches, None)
            for part in range(n_parts):
                yield functools.partial(begun.read, part, n_parts)
                if n_parts > 1 and part == 0 and following:  # or all its parts would wait for that
                    yield following.plan
            begun = following

    def _stretches(self, first: int) -> Iterator[tuple[int, int]]:
        """Yield the first batch of each stretch, and the one after its last."""
        # They begin small, so that the first batch comes as soon as if it were read alone.
        n_batches = self.plan.n_batches(self.rank)
        start, n_windows = first, 1
        while start < n_batches:
            window = start // self.plan.window_batches
            stop = min((window + n_windows) * self.plan.window_batches, n_batches)
            yield start, stop
            most = windows_at_once(self.plan.share, self.source.selection.row_bytes)
            start, n_windows = stop, min(2 * n_windows, most)

    def window(self, start: int, stop: int) -> Window:
        """Return what is delivered from one batch to another, which lie in one stretch."""
        per_window, size = self.plan.window_batches, self.plan.batch_size
        numbers = range(start // per_window, -(-stop // per_window))
        window = self.plan.windows(numbers, self.rank)
        first, last = start * size, min(stop * size, self.plan.n_delivered(self.rank))
        before = numbers.start * self.plan.window_rows
        if first > before or last < before + len(window.rows):
            return window.part(first - before, last - before)
        return window


def windows_at_once(share: RankShare, row_bytes: int) -> int:
    """Return how many windows are read together, at most: several only of small ones in order."""
    order = share.order
    if order.window_seed is not None or order.window_rows > share.batch_size:
        return 1
    n_rows = min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // max(1, row_bytes))
    return max(1, n_rows // order.window_rows)


class StretchRead:
    """Reads a stretch, some windows that follow each other, in parts that are begun in order."""

    def __init__(self, ahead: ReadAhead, shards: OpenShards, start: int, stop: int) -> None:
        self._ahead, self._shards = ahead, shards
        self.start, self._stop = start, stop  # of its batches
        # For what is decided once, for all parts. The lock of functools.cached_property is one for
        # all objects before Python 3.12: in a fork, a thread of the parent may have it for good.
        self._lock = threading.Lock()
        self._planned: tuple[Rows, ReadPlan] | None = None
        self._placed: tuple[list[Buffer], ShardReads] | None = None

    def plan(self) -> list[Batch]:
        """Decide what is read; there are no batches yet."""
        with self._lock:
            self._plan()
        return []

    def read(self, part: int, n_parts: int) -> list[Batch]:
        """Read one part; with the last, return the batches over memory that all parts fill."""
        with self._lock:
            (rows, _), (buffers, reads) = self._plan(), self._place()
        first, last = (len(reads.shard) * at // n_parts for at in (part, part + 1))
        self._shards.read_each(reads.part(slice(first, last)))
        if part < n_parts - 1:
            return []
        pool = self._ahead.pool
        batches = batches_of(self._ahead.source, rows, buffers, pool.n_rows)
        for buffer in buffers:
            pool.give_back(buffer)
        return batches

    def _plan(self) -> tuple[Rows, ReadPlan]:
        if self._planned is None:
            window, source = self._ahead.window(self.start, self._stop), self._ahead.source
            plan = ReadPlan.of(source.selection, window, self._ahead.pool.n_rows)
            self._planned = window.delivered, plan
        return self._planned

    def _place(self) -> tuple[list[Buffer], ShardReads]:
        if self._placed is None:
            buffers = [self._ahead.pool.take() for _ in range(self._stop - self.start)]
            self._placed = buffers, self._plan()[1].into(buffers)
        return self._placed
