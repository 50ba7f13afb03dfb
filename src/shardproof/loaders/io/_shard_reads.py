"""Which bytes of which shards go where, and how they come there."""

import collections
import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from shardproof.loaders.io._file_pool import OpenFile
from shardproof.loaders.io._memory import VECTOR, Destination, Scattered, Vectors
from shardproof.loaders.io._submissions import MOST_AT_ONCE, Requests, requests_of
from shardproof.loaders.order._selection import Rows

_BYTES_AT_ONCE = 2**21
"""What one call reads, about: no thread waits long for the other, nor a signal for the call."""

_LONG = 2**16
"""Reads of so many bytes are made one by one: the kernel takes longer for many in one call."""

_LONG_BYTES_AT_ONCE = 2**23
"""What a thread reads of such before it takes more."""


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
    memory: object  # to which these point: it is not to be gone while any of this is there

    def part(self, chosen: "slice | Rows") -> "ShardReads":
        """Return some of them."""
        shard, offset, first, stop, length = (each[chosen] for each in self[:5])
        return self._replace(shard=shard, offset=offset, first=first, stop=stop, length=length)

    def singly(self) -> Iterator[ShardRead]:
        """Yield one after the other."""
        lists = (each.tolist() for each in self[:4])
        for shard, offset, first, stop in zip(*lists, strict=True):
            yield ShardRead(shard, offset, Scattered(self.vectors[first:stop]))

    @property
    def addresses(self) -> Rows:
        """Where each finds its vectors."""
        return self.vectors.ctypes.data + self.first * VECTOR.itemsize

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

    def __init__(self, reads: ShardReads, files: Sequence[OpenFile], fds: Rows) -> None:
        self.is_over = False
        self._reads, self._files = reads, files  # whose memory and descriptors last as long as this
        counts = reads.stop - reads.first
        self._requests = requests_of(fds, reads.offset, reads.addresses, counts)
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
