"""Reads from shards that are open, or are opened for it; several threads may read at once."""

import collections
import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import tenacity  # here, since no thread that reads is to import anything

from shardproof._base.messages import told
from shardproof._base.names import NotRegularError
from shardproof._base.opening import HeldFile
from shardproof.errors import ShardReadError
from shardproof.loaders.io import _submissions
from shardproof.loaders.io._crew import Helpers
from shardproof.loaders.io._file_pool import FilePool
from shardproof.loaders.io._memory import VECTOR, Destination, Scattered, Vectors
from shardproof.loaders.io._submissions import MOST_AT_ONCE, Requests, read_singly, requests_of
from shardproof.loaders.order._selection import Rows

_BYTES_AT_ONCE = 2**21  # that one call reads: no thread waits long for another, nor a signal for it
_LONG = 2**16  # reads of so many bytes are made singly: the kernel takes longer for many at once
_LONG_BYTES_AT_ONCE = 2**23  # what a thread reads of such before it takes more
_MANY = 64  # fewer pieces take no longer one by one: Python makes an object for each of them

_ATTEMPTS = 4
_SECONDS = 10.0
# What a network file system says when a server was away or a file was replaced: open it again. And
# of descriptors that are short, others may have given some back by then.
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE}


class ShardRead(NamedTuple):
    """A read of bytes of one shard that follow each other."""

    shard: int
    offset: int
    destination: Destination  # which says how many they are


class ShardReads(NamedTuple):
    """Many such reads, in the order of the shards, as arrays with an item for each read."""

    shard: Rows
    offset: Rows
    first: Rows  # of its vectors
    stop: Rows
    length: Rows  # in bytes
    vectors: Vectors  # of all reads
    memory: object = None  # to which these point: it is not to be gone while any of this is there

    def part(self, chosen: "slice | Rows") -> "ShardReads":
        shard, offset, first, stop, length = (each[chosen] for each in self[:5])
        return self._replace(shard=shard, offset=offset, first=first, stop=stop, length=length)

    def singly(self) -> Iterator[ShardRead]:
        lists = (each.tolist() for each in self[:4])
        for shard, offset, first, stop in zip(*lists, strict=True):
            yield ShardRead(shard, offset, Scattered(self.vectors[first:stop]))

    @property
    def n_pieces(self) -> int:
        """How many pieces of memory they fill."""
        return int((self.stop - self.first).sum())

    def pieces(self, n_bytes: int) -> Iterator[slice]:
        """Yield which of them a thread does next, and next: so many bytes at most, or one read."""
        ends, start = np.cumsum(self.length), 0
        while start < len(ends):
            bound = int(ends[start] - self.length[start]) + n_bytes
            stop = max(start + 1, int(np.searchsorted(ends, bound, "right")))
            stop = min(stop, start + MOST_AT_ONCE)
            yield slice(start, stop)
            start = stop


class SharedReads:
    """Reads of files that are open, which several threads do together, a piece at a time."""

    def __init__(self, reads: ShardReads, files: Sequence[HeldFile], fds: Rows) -> None:
        self.is_over = False
        self._reads, self._files = reads, files  # whose memory and descriptors last as long as this
        counts = reads.stop - reads.first
        addresses = reads.vectors.ctypes.data + reads.first * VECTOR.itemsize
        self._requests = requests_of(fds, reads.offset, addresses, counts)
        self.are_long = int(reads.length.sum()) >= _LONG * len(fds)
        n_bytes = _LONG_BYTES_AT_ONCE if self.are_long else _BYTES_AT_ONCE
        self._pieces = collections.deque(reads.pieces(n_bytes))
        self.n_pieces = len(self._pieces)
        self.n_read = np.full(len(fds), -1, np.int64)

    def next_piece(self) -> Requests | None:
        """Return what no thread has begun; None when there is nothing left to do."""
        with contextlib.suppress(IndexError):
            if not self.is_over:
                return self._requests[self._pieces.popleft()]
        return None


class OpenShards(FilePool):
    """Reads from the shards of a directory, by some threads, and keeps open those read last."""

    def __init__(self, root: str, names: Sequence[str], n_readers: int = 1) -> None:
        super().__init__(root, names)
        self._n_readers = n_readers

    def read_each(self, reads: ShardReads, helpers: Helpers | None = None) -> None:
        """Do many reads, each of them whole."""
        while reads.n_pieces >= _MANY:
            reads = reads.part(slice(self._read_first(reads, helpers), None))
        for read in reads.singly():
            self.read(read)

    def _read_first(self, reads: ShardReads, helpers: Helpers | None) -> int:
        """Do those of the first shards, as many as may be open at once; return how many."""
        files, fds = self._first_files(reads.shard)
        some = reads.part(slice(len(fds)))
        shared = SharedReads(some, files, fds)
        try:
            if helpers is None or shared.n_pieces < 2:
                self._read_pieces(shared)
            else:
                helpers.share(lambda: self._read_pieces(shared))
        finally:
            shared.is_over = True
        left = some.part(np.flatnonzero(shared.n_read != some.length))
        if not len(fds):
            left = reads.part(slice(1))  # can't be opened: to read it alone is to say why
        for read in left.singly():
            self.read(read)
        return max(1, len(fds))

    def _first_files(self, shards: Rows) -> tuple[list[HeldFile], Rows]:
        """Return files for the first of some reads, and the descriptor for each of these."""
        changes = np.flatnonzero(shards[1:] != shards[:-1]) + 1
        bounds = np.concatenate(([0], changes, [len(shards)]))
        n_files = max(1, self.most // (2 * self._n_readers))
        files = self.files(shards[bounds[:-1][:n_files]].tolist())
        n_reads = bounds[1 : len(files) + 1] - bounds[: len(files)]
        return files, np.repeat(np.array([file.fd for file in files], np.int64), n_reads)

    def _read_pieces(self, shared: SharedReads) -> None:
        taken = contextlib.nullcontext() if shared.are_long else _submissions.queues.taken()
        # Where the kernel takes none, what is left is read one by one.
        with contextlib.suppress(OSError), taken as queue:
            read = read_singly if queue is None else queue.read
            while (requests := shared.next_piece()) is not None:
                read(requests, shared.n_read)

    def read(self, piece: ShardRead) -> None:
        """Fill memory from a shard, whole."""
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
        path = os.path.join(self._root, self._names[piece.shard])
        n_bytes = piece.destination.n_bytes
        return ShardReadError(problem, path=path, offset=piece.offset, expected=n_bytes, **more)

    def _read_patiently(self, piece: ShardRead) -> int:
        try:
            return self._read(piece)
        except OSError as error:
            if not _may_pass(error):
                raise
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            stop=tenacity.stop_after_attempt(_ATTEMPTS - 1) | tenacity.stop_after_delay(_SECONDS),
            wait=tenacity.wait_random(0.05, 1.0),
            before=lambda _: self.forget(piece.shard),  # so that the shard is opened anew
            reraise=True,
        )
        return retrying(self._read, piece)

    def _read(self, piece: ShardRead) -> int:
        n_done, n_bytes, fill = 0, piece.destination.n_bytes, piece.destination.fill
        file = self.file(piece.shard)
        try:
            while n_done < n_bytes and (n := fill(file.fd, piece.offset, n_done)):
                n_done += n
        finally:
            del file  # or an error that is kept would keep it open
        return n_done


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _PASSING
