"""The memory into which a tensor is read."""

from typing import Any

import numpy as np

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._dtypes import numpy_dtype
from shardproof.checkpoint.format._metadata import TensorEntry

__all__ = ["fresh", "given", "view_of"]

Array = np.ndarray[Any, Any]


def fresh(tensor: TensorEntry) -> Array:
    """Return new memory for a tensor; its size was compared with that of the file."""
    return np.empty(tensor.shape, numpy_dtype(tensor.dtype))


def given(array: Array, tensor: TensorEntry) -> Array:
    """Return an array that the caller gave, if the tensor can be read into it.

    Raises:
        TypeError: It has another type.
        ValueError: It has another shape or order, or can't be written.
    """
    expected = numpy_dtype(tensor.dtype)
    where = f"out[{quoted(tensor.name)}]"
    if array.dtype != expected:
        raise TypeError(f"{where}: expected {expected}, found {array.dtype}")
    if array.shape != tensor.shape:
        raise ValueError(f"{where}: expected the shape {tensor.shape}, found {array.shape}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{where}: expected an array in C order that can be written")
    return array


def view_of(array: Array) -> memoryview:
    """Return the bytes of an array in C order."""
    return array.reshape(-1).view(np.uint8).data
