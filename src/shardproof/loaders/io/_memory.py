"""Memory for batches, and the ways in which the bytes of a read get there.

Fresh memory costs as much as the reading: the kernel clears each page of it first. So it is used
again as soon as nothing holds it any more.
"""

import bisect
import ctypes
import errno
import itertools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

MOST_VECTORS = 1024  # IOV_MAX of Linux, readv(2)

VECTOR = np.dtype([("base", np.uintp), ("length", np.uintp)])  # struct iovec, readv(2)

_library = ctypes.CDLL(None, use_errno=True)
_preadv = getattr(_library, "preadv64", None) or _library.preadv  # musl knows the second name only
_preadv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
_preadv.restype = ctypes.c_ssize_t

Vectors = npt.NDArray[np.void]  # address and length of each of some pieces of memory


Bytes = npt.NDArray[np.uint8]


def fresh(n_bytes: int) -> Bytes:
    """Return memory of which nothing is known."""
    return np.empty(n_bytes, np.uint8)


class Buffer:
    """Memory for some rows."""

    __slots__ = ("_n_own", "_row_bytes", "address", "bytes")

    def __init__(self, n_rows: int, row_bytes: int, memory: Callable[[int], Bytes] = fresh) -> None:
        self.bytes = memory(n_rows * row_bytes)
        self.address: int = self.bytes.ctypes.data
        self._row_bytes = row_bytes
        self._n_own = self._n_references()

    def array(self, n_rows: int, dtype: "np.dtype[Any]") -> npt.NDArray[Any]:
        """Return the first rows as numbers, ``[n_rows, values]``."""
        n_values = self._row_bytes // dtype.itemsize
        return self.bytes[: n_rows * self._row_bytes].view(dtype).reshape(n_rows, n_values)

    @property
    def is_free(self) -> bool:
        """Whether no array or tensor over this memory is left."""
        return self._n_references() <= self._n_own

    def _n_references(self) -> int:
        return sys.getrefcount(self.bytes)


class BufferPool:
    """Hands out buffers of one size, and some of them again once they are free, to any thread."""

    def __init__(
        self, n_rows: int, row_bytes: int, n_kept: int, memory: Callable[[int], Bytes] = fresh
    ) -> None:
        self.n_rows, self._row_bytes, self._n_kept = n_rows, row_bytes, n_kept
        self._memory = memory
        self._returned: list[Buffer] = []
        self._lock = threading.Lock()

    def take(self) -> Buffer:
        """Return a buffer that is not in use."""
        with self._lock:
            for place, buffer in enumerate(self._returned):
                if buffer.is_free:
                    return self._returned.pop(place)
        return Buffer(self.n_rows, self._row_bytes, self._memory)

    def give_back(self, buffer: Buffer) -> None:
        """Return a buffer, to be taken again once the arrays that were made over it are gone."""
        with self._lock:
            if len(self._returned) < self._n_kept:
                self._returned.append(buffer)


class Contiguous:
    """Memory in one piece."""

    __slots__ = ("_memory", "n_bytes")

    def __init__(self, memory: memoryview) -> None:
        self._memory, self.n_bytes = memory, len(memory)

    def fill(self, fd: int, offset: int, n_done: int) -> int:
        """Read on after the first bytes, and return how many more there are now; 0 at the end."""
        return os.preadv(fd, [self._memory[n_done:]], offset + n_done)


class Scattered:
    """Memory in several pieces; the maker of their vectors keeps it alive."""

    __slots__ = ("_ends", "_views", "n_bytes")

    def __init__(self, vectors: Vectors) -> None:
        memory = ((ctypes.c_char * length).from_address(base) for base, length in vectors.tolist())
        self._views = [memoryview(each).cast("B") for each in memory]
        self._ends = list(itertools.accumulate(map(len, self._views)))
        self.n_bytes = self._ends[-1]

    def fill(self, fd: int, offset: int, n_done: int) -> int:
        """Do as `Contiguous.fill`."""
        first = bisect.bisect(self._ends, n_done)
        views = self._views[first : first + MOST_VECTORS]
        views[0] = views[0][len(views[0]) - (self._ends[first] - n_done) :]
        return os.preadv(fd, views, offset + n_done)


Destination = Contiguous | Scattered  # takes bytes of a file that follow each other


def read_vectors(fd: int, address: int, n_vectors: int, offset: int) -> int:
    """Do one call of preadv(2), and return how many bytes it gave."""
    # Not by ``os.preadv``, since to look at an object for each vector takes longer than to read.
    while (n_read := _preadv(fd, address, n_vectors, offset)) < 0:
        number = ctypes.get_errno()
        if number != errno.EINTR:  # as os.preadv does
            raise OSError(number, os.strerror(number))
    return int(n_read)


def vectors(addresses: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Vectors:
    """Return a vector for each piece of memory, which has an address and a length in bytes."""
    made = np.empty(len(addresses), VECTOR)
    made["base"], made["length"] = addresses, lengths
    return made
