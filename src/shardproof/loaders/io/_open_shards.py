"""Shards of one directory, opened when they are read; several threads may read at once."""

import collections
import contextlib
import dataclasses
import errno
import os
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tenacity  # here, since no thread that reads is to import anything

from shardproof._base.messages import told
from shardproof._base.names import NotRegularError, open_inside, open_root
from shardproof._base.work import apart
from shardproof.errors import ShardReadError
from shardproof.loaders.io._memory import Contiguous, Destination
from shardproof.loaders.io._submissions import Submissions, open_submissions
from shardproof.loaders.order._selection import Rows

__all__ = ["BufferReads", "OpenShards", "ShardRead"]

_MAX_OPEN = 64
_MANY = 32
_SHORT = 2**16  # bytes; of longer reads the system call itself takes the time

_ATTEMPTS = 4
_SECONDS = 10.0
# What a network file system says when a server was away or a file was replaced: open it again.
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT}


class ShardRead(NamedTuple):
    """A read of bytes of one shard that follow each other."""

    shard: int
    offset: int
    destination: Destination  # which says how many they are


class BufferReads(NamedTuple):
    """Many reads from one shard into one memory, as parallel arrays with an item for each read."""

    memory: npt.NDArray[np.uint8]
    offset: Rows  # where each begins in the shard
    start: Rows  # where each begins in the memory
    length: Rows  # all in bytes

    def memory_of(self, place: int) -> memoryview:
        """Return the memory of one read."""
        start = int(self.start[place])
        return self.memory.data[start : start + int(self.length[place])]

    @property
    def are_small(self) -> bool:
        """Whether they are so many and so short that calls from Python would take the time."""
        return len(self.length) >= _MANY and int(self.length.max()) <= _SHORT


class OpenShards:
    """Reads from the shards of a directory, and keeps open those that were read last."""

    def __init__(self, root: str, names: Sequence[str]) -> None:
        self._root, self._names = root, names
        self._dir_fd: int | None = None
        self._open: collections.OrderedDict[int, _SharedFile] = collections.OrderedDict()
        self._queues: list[Submissions] = []  # that are not in use now
        self._all_queues: list[Submissions] = []
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether there is any descriptor or queue to close."""
        return bool(self._all_queues or self._open or self._dir_fd is not None)

    def close(self, _: object = None) -> None:
        """Close every descriptor and queue, after all reads; several threads may do so."""
        with self._lock:
            self._queues.clear()
            while self._all_queues:
                self._all_queues[-1].close()
                self._all_queues.pop()
            while self._open:
                index, file = next(reversed(self._open.items()))
                # Not by popitem(): an interrupt comes behind a call, and would lose what it gave.
                del self._open[index]
                os.close(file.fd)
            if self._dir_fd is not None:
                fd, self._dir_fd = self._dir_fd, None
                os.close(fd)

    def __del__(self) -> None:
        """Close what stayed open, as where two interrupts came while it was being closed."""
        with contextlib.suppress(AttributeError):  # cut short while it was made: nothing is open
            self.close()

    def path(self, index: int) -> str:
        """Return the absolute path of a shard."""
        return os.path.join(self._root, self._names[index])

    def read_each(self, shard: int, reads: BufferReads) -> None:
        """Do many reads from one shard, each of them whole.

        Raises:
            ShardReadError: As `read`, which does again what was not whole at once.
        """
        n_read = None  # how many bytes each gave at the first try
        with contextlib.suppress(OSError, NotRegularError):
            file = self._take(shard)
            try:
                n_read = self._submitted(file.fd, reads) if reads.are_small else None
                if n_read is None:
                    found = np.zeros(len(reads.offset), np.int64)
                    for place, offset in enumerate(reads.offset.tolist()):
                        found[place] = os.preadv(file.fd, (reads.memory_of(place),), offset)
                    n_read = found
            finally:
                self._give_back(file)
        again = reads.length > 0 if n_read is None else n_read != reads.length
        for place in np.flatnonzero(again).tolist():
            destination = Contiguous(reads.memory_of(place))
            self.read(ShardRead(shard, int(reads.offset[place]), destination))

    def _submitted(self, fd: int, reads: BufferReads) -> Rows | None:
        """Do the reads by one call; None where the kernel offers none."""
        with self._lock:
            queue = self._queues.pop() if self._queues else None
        queue = queue or apart(self._new_queue)
        if queue is None:
            return None
        addresses = reads.memory.ctypes.data + reads.start
        n_read = queue.read(fd, reads.offset, addresses, reads.length)
        with self._lock:
            self._queues.append(queue)
        return n_read

    def _new_queue(self, _: object) -> Submissions | None:
        queue = open_submissions()
        if queue is not None:
            self._all_queues.append(queue)
        return queue

    def read(self, piece: ShardRead) -> None:
        """Fill memory from a shard, whole.

        Raises:
            ShardReadError: The shard is gone, shorter, or can't be read; what can pass was tried
                again.
        """
        try:
            n_read = self._read_patiently(piece)
        except NotRegularError as error:
            problem = f"expected a regular file, found a {error.found}"
            raise self._failed(piece, problem) from error
        except OSError as error:
            problem = error.strerror or told(error)
            raise self._failed(piece, problem, errno=error.errno) from error
        if n_read < piece.destination.n_bytes:
            raise self._failed(piece, "it is shorter than when it was validated", found=n_read)

    def _failed(self, piece: ShardRead, problem: str, **more: Any) -> ShardReadError:
        path, n_bytes = self.path(piece.shard), piece.destination.n_bytes
        return ShardReadError(problem, path=path, offset=piece.offset, expected=n_bytes, **more)

    def _read_patiently(self, piece: ShardRead) -> int:
        try:
            return self._read(piece)
        except OSError as error:
            if not _may_pass(error):
                raise

        def read_anew() -> int:
            with self._lock:
                shard = self._open.pop(piece.shard, None)
                if shard is not None:
                    shard.forgotten = True
                    if not shard.n_readers:
                        os.close(shard.fd)
            return self._read(piece)  # which opens the shard anew

        attempts = tenacity.stop_after_attempt(_ATTEMPTS - 1)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=attempts | tenacity.stop_after_delay(_SECONDS),
            wait=tenacity.wait_random(0.05, 1.0),
            reraise=True,
        )
        return retrying(read_anew)

    def _read(self, piece: ShardRead) -> int:
        n_done, n_bytes, fill = 0, piece.destination.n_bytes, piece.destination.fill
        shard = self._take(piece.shard)
        try:
            while n_done < n_bytes and (n := fill(shard.fd, piece.offset, n_done)):
                n_done += n
        finally:
            self._give_back(shard)
        return n_done

    def _take(self, index: int) -> "_SharedFile":
        with self._lock:
            shard = self._open.get(index)
            if shard is not None:
                self._open.move_to_end(index)
                shard.n_readers += 1
                return shard
        return apart(lambda _: self._opened(index))  # or an interrupt might lose a descriptor

    def _opened(self, index: int) -> "_SharedFile":
        with self._lock:
            if self._dir_fd is None:
                self._dir_fd = open_root(self._root)
            dir_fd = self._dir_fd
        shard = _SharedFile(open_inside(self._names[index], root=self._root, dir_fd=dir_fd))
        with self._lock:
            other = self._open.setdefault(index, shard)
            other.n_readers += 1
            if other is not shard:
                os.close(shard.fd)
            unused = [old for old, file in self._open.items() if not file.n_readers]
            for old in unused[: max(0, len(self._open) - _MAX_OPEN)]:
                os.close(self._open.pop(old).fd)
        return other

    def _give_back(self, shard: "_SharedFile") -> None:
        with self._lock:
            shard.n_readers -= 1
            if shard.forgotten and not shard.n_readers:
                os.close(shard.fd)


@dataclasses.dataclass(slots=True)
class _SharedFile:
    fd: int
    n_readers: int = 0
    forgotten: bool = False


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _PASSING
