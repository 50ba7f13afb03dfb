"""Shards of one directory, opened when they are read; several threads may read at once."""

import collections
import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import tenacity  # here, since no thread that reads is to import anything

from shardproof._base.messages import told
from shardproof._base.names import NotRegularError, open_inside, open_root
from shardproof._base.work import apart
from shardproof.errors import ShardReadError
from shardproof.loaders.io._destinations import Contiguous, Destination
from shardproof.loaders.io._submissions import Submissions, open_submissions
from shardproof.loaders.order._selection import Rows

__all__ = ["BufferReads", "OpenShards", "ShardRead"]

_MAX_OPEN = 64
_MANY = 32
_SHORT = 2**16

_ATTEMPTS = 4
_SECONDS = 10.0
# What a network file system says when a server was away or a file was replaced: open it again.
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT}


class ShardRead(NamedTuple):
    """A read of bytes of one shard that follow each other.

    Attributes:
        shard: Which shard.
        offset: Where they begin.
        destination: Where they go; it says how many they are.
    """

    shard: int
    offset: int
    destination: Destination


class BufferReads(NamedTuple):
    """Many reads from one shard into one memory, as parallel arrays with an item for each read.

    Attributes:
        memory: All of the memory.
        offset: Where each begins in the shard.
        start: Where each begins in the memory.
        length: How long each is; all in bytes.
    """

    memory: npt.NDArray[np.uint8]
    offset: Rows
    start: Rows
    length: Rows

    def memory_of(self, place: int) -> memoryview:
        """Return the memory of one read."""
        start = int(self.start[place])
        return self.memory.data[start : start + int(self.length[place])]

    @property
    def are_small(self) -> bool:
        """Whether they are so many and so short that calls from Python would take the time."""
        return len(self.length) >= _MANY and int(self.length.max()) <= _SHORT


class OpenShards:
    """Reads from shards, and keeps open those that were read last; for several threads.

    Args:
        root: Real absolute path of the directory.
        names: File name of each shard.
    """

    def __init__(self, root: str, names: Sequence[str]) -> None:
        self._root, self._names = root, names
        self._dir_fd: int | None = None
        self._open: collections.OrderedDict[int, _SharedFile] = collections.OrderedDict()
        self._queues: list[Submissions] = []  # that nobody uses now
        self._all_queues: list[Submissions] = []
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """Whether there is any descriptor or queue to close."""
        return bool(self._all_queues or self._open or self._dir_fd is not None)

    def close(self, _: object = None) -> None:
        """Close every descriptor and queue; nobody may be reading, but others may close them."""
        with self._lock:
            self._queues.clear()
            while self._all_queues:
                self._all_queues[-1].close()
                self._all_queues.pop()
            while self._open:
                os.close(self._open.popitem()[1].fd)
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
        for place in np.flatnonzero(self._read_at_once(shard, reads) != reads.length).tolist():
            destination = Contiguous(reads.memory_of(place))
            self.read(ShardRead(shard, int(reads.offset[place]), destination))

    def _read_at_once(self, index: int, reads: BufferReads) -> Rows:
        """Try each read once, and return how many bytes each gave."""
        with contextlib.suppress(OSError, NotRegularError):
            shard = self._take(index)
            try:
                n_read = self._submitted(shard.fd, reads) if reads.are_small else None
                if n_read is None:
                    n_read = np.zeros(len(reads.offset), np.int64)
                    for place, offset in enumerate(reads.offset.tolist()):
                        n_read[place] = os.preadv(shard.fd, (reads.memory_of(place),), offset)
                return n_read
            finally:
                self._give_back(shard)
        return np.zeros(len(reads.offset), np.int64)

    def _submitted(self, fd: int, reads: BufferReads) -> Rows | None:
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
            raise self._failed(piece, problem, 0) from error
        except OSError as error:
            problem = error.strerror or told(error)
            raise self._failed(piece, problem, 0, error.errno) from error
        if n_read < piece.destination.n_bytes:
            raise self._failed(piece, "it is shorter than when it was validated", n_read)

    def _failed(
        self, piece: ShardRead, problem: str, got: int, errno: int | None = None
    ) -> ShardReadError:
        return ShardReadError(
            problem,
            path=self.path(piece.shard),
            offset=piece.offset,
            expected=piece.destination.n_bytes,
            found=got,
            errno=errno,
        )

    def _read_patiently(self, piece: ShardRead) -> int:
        try:
            return self._read(piece)
        except OSError as error:
            if not _may_pass(error):
                raise

        def read_anew() -> int:
            self._forget(piece.shard)
            return self._read(piece)

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

    def _forget(self, index: int) -> None:
        """Open this shard anew next time."""
        with self._lock:
            shard = self._open.pop(index, None)
            if shard is not None:
                shard.forgotten = True
                if not shard.n_readers:
                    os.close(shard.fd)


class _SharedFile:
    __slots__ = ("fd", "forgotten", "n_readers")

    def __init__(self, fd: int) -> None:
        self.fd, self.n_readers, self.forgotten = fd, 0, False


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _PASSING
