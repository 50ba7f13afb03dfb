"""Memory for batches, used again as soon as whoever had it has let go of it.

Fresh memory costs as much as the reading: the kernel clears each page of it first.
"""

import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Block", "Blocks"]


class Block:
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


class Blocks:
    """Blocks of one size, handed out again when they are free; for several threads.

    Args:
        n_rows: Rows of a block.
        row_bytes: Bytes of a row.
        n_kept: How many blocks are kept for that; more may be in use.

    Attributes:
        n_rows: Rows of a block.
    """

    def __init__(self, n_rows: int, row_bytes: int, n_kept: int) -> None:
        self.n_rows, self._row_bytes, self._n_kept = n_rows, row_bytes, n_kept
        self._returned: list[Block] = []
        self._lock = threading.Lock()

    def take(self) -> Block:
        """Return a block that nobody else has."""
        with self._lock:
            for place, block in enumerate(self._returned):
                if block.is_free:
                    return self._returned.pop(place)
        return Block(self.n_rows, self._row_bytes)

    def give_back(self, block: Block) -> None:
        """Let a block be taken again once the arrays made over it, by now, are gone."""
        with self._lock:
            if len(self._returned) < self._n_kept:
                self._returned.append(block)
