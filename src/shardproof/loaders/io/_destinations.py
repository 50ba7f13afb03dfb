"""Where the bytes of a read go: into memory in one piece, or to an address for each row."""

import ctypes
import os
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Contiguous", "Destination", "RowVectors", "Vectors", "vectors"]

_MAX_VECTORS = 1024  # IOV_MAX of Linux, readv(2)

_IOVEC = np.dtype([("base", np.uintp), ("length", np.uintp)])  # struct iovec, readv(2)

_library = ctypes.CDLL(None, use_errno=True)
_preadv = getattr(_library, "preadv64", None) or _library.preadv  # musl knows the second name only
_preadv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]
_preadv.restype = ctypes.c_ssize_t

Vectors = npt.NDArray[np.void]
"""Address and length of each of some rows."""


class Destination(Protocol):
    """Takes bytes of a file that follow each other."""

    @property
    def n_bytes(self) -> int:
        """How many bytes there are."""
        ...

    def fill(self, fd: int, offset: int, n_done: int) -> int:
        """Read on after the first bytes, and return how many more there are now; 0 at the end.

        Raises:
            OSError: What reading says.
        """
        ...


class Contiguous:
    """Memory in one piece.

    Args:
        memory: Of bytes.
    """

    __slots__ = ("_memory", "n_bytes")

    def __init__(self, memory: memoryview) -> None:
        self._memory, self.n_bytes = memory, len(memory)

    def fill(self, fd: int, offset: int, n_done: int) -> int:
        """Read on after the first bytes."""
        return os.preadv(fd, [self._memory[n_done:]], offset + n_done)


class RowVectors:
    """Memory in one piece for each row.

    Through the C library, since ``os.preadv`` wants an object for each row: looking at as many
    objects takes longer than reading.

    Args:
        vectors: Made by `vectors`; the maker keeps the memory alive.
        row_bytes: Size of a row.
    """

    __slots__ = ("_row_bytes", "_vectors", "n_bytes")

    def __init__(self, vectors: Vectors, row_bytes: int) -> None:
        self._vectors, self._row_bytes = vectors, row_bytes
        self.n_bytes = len(vectors) * row_bytes

    def fill(self, fd: int, offset: int, n_done: int) -> int:
        """Read on from the beginning of the first row that is not whole."""
        row, n_again = divmod(n_done, self._row_bytes)
        n_rows = min(len(self._vectors) - row, _MAX_VECTORS)
        address = self._vectors.ctypes.data + row * _IOVEC.itemsize
        n_read: int = _preadv(fd, address, n_rows, offset + n_done - n_again)
        if n_read < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return max(0, n_read - n_again)


def vectors(addresses: npt.NDArray[Any], row_bytes: int) -> Vectors:
    """Return a vector for each row that begins at an address."""
    made = np.empty(len(addresses), _IOVEC)
    made["base"], made["length"] = addresses, row_bytes
    return made
