"""The types of a tensor's elements: their names in the format, sizes, and numpy's own."""

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["ITEM_SIZES", "can_be", "name_of", "numpy_dtype"]

_NUMPY = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
_RAW = {
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}

_MAX_BYTES = 2**63 - 1

ITEM_SIZES = _NUMPY | _RAW
"""Bytes of one element, by the name of its type."""


def can_be(shape: Sequence[int], dtype: str) -> bool:
    """Return whether an array can have a shape; numpy counts bytes without lengths that are 0."""
    return math.prod(filter(None, shape)) * ITEM_SIZES[dtype] <= _MAX_BYTES


def name_of(dtype: "np.dtype[Any]") -> str:
    """Return the name of a type in the format.

    Raises:
        TypeError: It has none.
    """
    if dtype.name not in ITEM_SIZES or dtype.itemsize != ITEM_SIZES[dtype.name]:
        expected = ", ".join(sorted(ITEM_SIZES))
        raise TypeError(f"dtype: expected one of {expected}, found {dtype}")
    return dtype.name


def numpy_dtype(name: str) -> "np.dtype[Any]":
    """Return the type in numpy, little endian.

    What numpy doesn't have is the type of the package ml_dtypes where that is installed, and
    unsigned integers of the same size where it is not.
    """
    if name in _NUMPY:
        return np.dtype(name).newbyteorder("<")
    if importlib.util.find_spec("ml_dtypes"):
        import ml_dtypes  # noqa: PLC0415 - where somebody has it

        if hasattr(ml_dtypes, name):
            dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return dtype
    return np.dtype(f"<u{_RAW[name]}")
