"""Shards of one directory, opened when they are read; several threads may read at once."""

import collections
import contextlib
import dataclasses
import errno
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

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

Taken = TypeVar("Taken")
Result = TypeVar("Result")

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
    """Reads from the shards of a directory, and keeps open those that were read last.

    What is to be closed goes to ``_left`` first, where no thread finds it any more. The last thread
    that uses it closes it; until then its number is of no other file.
    """

    def __init__(self, root: str, names: Sequence[str]) -> None:
        self._root, self._names = root, names
        self._directories: list[_SharedFile] = []  # none or one
        self._open: collections.OrderedDict[int, _SharedFile] = collections.OrderedDict()
        self._queues: list[Submissions] = []
        self._left: list[_SharedFile | Submissions] = []
        self._lock = threading.Lock()
        _living.add(self)

    @property
    def is_open(self) -> bool:
        """Whether there is any descriptor or queue to close, but for those that a thread closes."""
        is_left = any(not one.readers for one in self._left)
        return bool(is_left or self._queues or self._open or self._directories)

    def close(self, _: object = None) -> None:
        """Close every descriptor and queue; those in use are closed as they are given back.

        Several threads may do so, and others may read meanwhile. A read that begins later opens
        anew what it needs; that is closed by another call, or when this object is gone.
        """
        with self._lock:
            found, nothing = self._all(), collections.OrderedDict[int, _SharedFile]()
            # In one step and without a call, behind which an interrupt might come.
            self._left, self._open, self._queues, self._directories = found, nothing, [], []
            self._sweep()

    def _all(self) -> "list[_SharedFile | Submissions]":
        return [*self._left, *self._queues, *self._open.values(), *self._directories]

    def _sweep(self) -> None:
        """Close what was left and is not in use; the lock is held."""
        for one in [one for one in self._left if not one.readers]:
            one.close()
            self._left.remove(one)

    def _close_left(self) -> None:
        with self._lock:
            self._sweep()

    def _forget_readers(self) -> None:
        """Take nothing for in use: no thread is left that reads."""
        for one in self._all():
            one.readers.clear()

    def __del__(self) -> None:
        """Close what stayed open, as where two interrupts came while it was being closed.

        Nothing is in use then: a reader would hold this object.
        """
        with contextlib.suppress(AttributeError):  # cut short while it was made: nothing is open
            self._forget_readers()
            self.close()

    def _begin_in_child(self) -> None:
        """Drop the lock, which another thread of the parent may hold, and the parent's readers."""
        self._lock = threading.Lock()
        self._queues = []  # which are the parent's alone: here the kernel has none of them
        self._forget_readers()
        self._sweep()  # the threads that were to close these are not here

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
            n_read = self._use(
                lambda held: self._take(shard, held), lambda file: self._read_once(file.fd, reads)
            )
        again = reads.length > 0 if n_read is None else n_read != reads.length
        for place in np.flatnonzero(again).tolist():
            destination = Contiguous(reads.memory_of(place))
            self.read(ShardRead(shard, int(reads.offset[place]), destination))

    def _read_once(self, fd: int, reads: BufferReads) -> Rows:
        """Return how many bytes each read gave."""
        found = self._submitted(fd, reads) if reads.are_small else None
        if found is None:
            found = np.zeros(len(reads.offset), np.int64)
            for place, offset in enumerate(reads.offset.tolist()):
                found[place] = os.preadv(fd, (reads.memory_of(place),), offset)
        return found

    def _submitted(self, fd: int, reads: BufferReads) -> Rows | None:
        """Do the reads by one call; None where the kernel offers none."""
        addresses = reads.memory.ctypes.data + reads.start
        return self._use(
            self._take_queue,
            lambda queue: queue.read(fd, reads.offset, addresses, reads.length) if queue else None,
        )

    def _take_queue(self, held: "_Held") -> Submissions | None:
        with self._lock:
            for queue in self._queues:
                if queue.is_open and not queue.readers:
                    held += [queue]  # as in `_take`
                    queue.readers += [None]
                    return queue
        return apart(lambda _: self._new_queue(held))

    def _new_queue(self, held: "_Held") -> Submissions | None:
        queue = open_submissions()
        if queue is not None:
            with self._lock:
                held += [queue]
                queue.readers += [None]
                self._queues = [*(one for one in self._queues if one.is_open), queue]
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
                if piece.shard in self._open:
                    self._left += [self._open[piece.shard]]  # without a call, as in `close`
                    del self._open[piece.shard]
                self._sweep()
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
        held: _Held = []
        try:  # as in `_use`, whose calls take a tenth of the time that one row takes
            fd = self._take(piece.shard, held).fd
            while n_done < n_bytes and (n := fill(fd, piece.offset, n_done)):
                n_done += n
        finally:
            if held and held[0].readers:
                held[0].readers.pop()
            if self._left:
                self._close_left()
        return n_done

    def _use(self, take: Callable[["_Held"], Taken], work: Callable[[Taken], Result]) -> Result:
        """Return what is made of something that nobody closes meanwhile."""
        held: _Held = []
        try:
            result = work(take(held))
        finally:
            # By one call: behind it, a second interrupt leaves nothing that looks as if in use.
            if held and held[0].readers:  # none in a process that was forked within the work
                held[0].readers.pop()
            if self._left:
                self._close_left()
        return result

    def _take(self, index: int, held: "_Held") -> "_SharedFile":
        """Return a shard that is open, which is in the list of what is held from then on."""
        with self._lock:
            shard = self._open.get(index)
            if shard is not None:
                self._open.move_to_end(index)
                held += [shard]  # and then no call, behind which an interrupt might come
                shard.readers += [None]
                return shard
        return apart(lambda _: self._opened(index, held))  # an interrupt might lose a descriptor

    def _opened(self, index: int, held: "_Held") -> "_SharedFile":
        fd = self._use(
            self._take_directory,
            lambda directory: open_inside(self._names[index], root=self._root, dir_fd=directory.fd),
        )
        shard = _SharedFile(fd)
        with self._lock:
            other = self._open.setdefault(index, shard)
            held += [other]
            other.readers += [None]
            if other is not shard:
                self._left.append(shard)
            unused = [old for old, file in self._open.items() if not file.readers]
            for old in unused[: max(0, len(self._open) - _MAX_OPEN)]:
                self._left.append(self._open.pop(old))
            self._sweep()
        return other

    def _take_directory(self, held: "_Held") -> "_SharedFile":
        with self._lock:
            if not self._directories:
                self._directories.append(_SharedFile(open_root(self._root)))
            directory = self._directories[0]
            held += [directory]
            directory.readers += [None]
        return directory


_living: weakref.WeakSet[OpenShards] = weakref.WeakSet()


def _begin_each_in_child() -> None:
    for shards in list(_living):
        shards._begin_in_child()


os.register_at_fork(after_in_child=_begin_each_in_child)


@dataclasses.dataclass(slots=True, eq=False)
class _SharedFile:
    fd: int
    readers: list[None] = dataclasses.field(default_factory=list)  # counted by its length

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


_Held = list[_SharedFile | Submissions]


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _PASSING
