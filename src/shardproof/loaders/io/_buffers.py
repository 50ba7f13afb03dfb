"""Memory for batches, used again as soon as nobody holds it any more.

Fresh memory costs as much as the reading: the kernel clears each page of it first.
"""

import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Buffer", "BufferPool"]


class Buffer:
    """Memory for some rows.

    Attributes:
        bytes: All of it.
        address: Where it begins.
    """

    __slots__ = ("_n_own", "_row_bytes", "address", "bytes")

    def __init__(self, n_rows: int, row_bytes: int) -> None:
        self.bytes: npt.NDArray[np.uint8] = np.empty(n_rows * row_bytes, np.uint8)
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
    """Hands out buffers of one size, and the same ones again once they are free.

    Several threads may use it at once.

    Args:
        n_rows: Rows of a buffer.
        row_bytes: Bytes of a row.
        n_kept: How many buffers are kept for later; more may be in use.

    Attributes:
        n_rows: Rows of a buffer.
    """

    def __init__(self, n_rows: int, row_bytes: int, n_kept: int) -> None:
        self.n_rows, self._row_bytes, self._n_kept = n_rows, row_bytes, n_kept
        self._returned: list[Buffer] = []
        self._lock = threading.Lock()

    def take(self) -> Buffer:
        """Return a buffer that nobody else has."""
        with self._lock:
            for place, buffer in enumerate(self._returned):
                if buffer.is_free:
                    return self._returned.pop(place)
        return Buffer(self.n_rows, self._row_bytes)

    def give_back(self, buffer: Buffer) -> None:
        """Let a buffer be taken again, once the arrays that were made over it are gone."""
        with self._lock:
            if len(self._returned) < self._n_kept:
                self._returned.append(buffer)
