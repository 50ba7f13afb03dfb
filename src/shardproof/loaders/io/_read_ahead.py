"""One iteration: windows are read ahead by threads, and delivered as batches."""

import dataclasses
import functools
import operator
import threading
from collections.abc import Callable, Generator, Iterator

from shardproof._base.crew import Crew
from shardproof._base.work import apart, is_collecting, later
from shardproof.loaders.io._memory import BufferPool
from shardproof.loaders.io._open_shards import OpenShards
from shardproof.loaders.io._read_plan import ReadPlan
from shardproof.loaders.io._row_source import Batch, RowSource, batch_of
from shardproof.loaders.order._epoch_plan import EpochPlan, Window
from shardproof.loaders.order._selection import Rows

__all__ = ["ReadAhead", "WindowRead"]

_MOST_THREADS = 1024
"""More would take longer to start than they save."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadAhead:
    """Reads what one iteration delivers to a rank, some windows ahead, by threads."""

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
        shards = self.source.open()
        n_threads = self._n_threads
        readers: _Readers = Crew(operator.call, n_threads, "shardproof-reader")
        try:
            # One window, in its parts, is read while the one before is delivered.
            reads = self._reads(shards, first)
            for batches in readers.results(reads, depth=n_threads + 1):
                batches.reverse()
                while batches:  # popped, so that its memory is the caller's alone
                    yield batches.pop()
        finally:
            try:
                _end(readers, shards)
            finally:
                _end(readers, shards)  # what an interrupt has cut short

    def _reads(self, shards: OpenShards, first: int) -> Iterator[Callable[[], list[Batch]]]:
        """Yield what reads each part of each window, in order, from that of a batch on."""
        n_parts = self._n_threads if self.plan.window_rows > self.plan.batch_size else 1
        per_window = self.plan.window_rows // self.plan.batch_size
        n_batches = self.plan.n_batches(self.rank)
        for number in range(first // per_window, -(-n_batches // per_window)):
            n_skipped = max(0, first - number * per_window)
            if number * per_window + n_skipped >= n_batches:
                return
            window = WindowRead(self, shards, number, n_skipped)
            for part in range(n_parts):
                yield functools.partial(window.read, part, n_parts)

    def window(self, number: int, n_skipped: int) -> Window:
        """Return what is delivered of a window, after some batches that were delivered before."""
        window = self.plan.window(number, self.rank)
        start = n_skipped * self.plan.batch_size
        stop = self.plan.n_delivered(self.rank) - number * self.plan.window_rows
        if start or stop < len(window.rows):
            return window.part(start, max(0, stop))
        return window


class WindowRead:
    """Reads one window into memory, in parts that are begun in order.

    The thread that begins first plans the reads of all parts, so that the caller's plans nothing.
    The first ``n_skipped`` batches of the window were delivered before.
    """

    def __init__(self, ahead: ReadAhead, shards: OpenShards, number: int, n_skipped: int) -> None:
        self._ahead, self._shards = ahead, shards
        self.number, self._n_skipped = number, n_skipped
        self._lock = threading.Lock()
        self._plan: ReadPlan | None = None
        self._batch_rows: list[Rows] = []

    def read(self, part: int, n_parts: int) -> list[Batch]:
        """Read one part; with the last, return the batches over memory that all parts fill."""
        source, pool = self._ahead.source, self._ahead.pool
        with self._lock:  # planned once: the parts that come meanwhile wait for it
            if self._plan is None:
                window = self._ahead.window(self.number, self._n_skipped)
                rows, size = window.delivered, self._ahead.plan.batch_size
                self._batch_rows = [rows[at : at + size] for at in range(0, len(rows), size)]
                buffers = [pool.take() for _ in self._batch_rows]
                self._plan = ReadPlan.of(source.selection, window, buffers, pool.n_rows)
            plan = self._plan
        plan.read(self._shards, part, n_parts)
        if part < n_parts - 1:
            return []
        batches = []
        for rows, buffer in zip(self._batch_rows, plan.buffers, strict=True):
            act = buffer.array(len(rows), source.selection.dtype)
            batches.append(batch_of(source, rows, act))
            pool.give_back(buffer)
        return batches


_Readers = Crew[Callable[[], list[Batch]], list[Batch]]


def _end(readers: _Readers, shards: OpenShards) -> None:
    """End the threads, and then close what they read from."""

    def close() -> None:
        readers.end()
        if shards.is_open:
            apart(shards.close)

    if is_collecting():
        later(close)
    else:
        close()
