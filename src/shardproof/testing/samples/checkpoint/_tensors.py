"""What a tensor of a checkpoint is, without its bytes.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["ITEM_SIZES", "CheckpointTensor", "as_tensor"]

ITEM_SIZES = {
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
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
"""The format's dtypes, and how many bytes an element has."""

_MAX_DIMENSIONS = 32


class CheckpointTensor(NamedTuple):
    """One tensor of a rank."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]


def as_tensor(given: tuple[str, str, Iterable[int]]) -> CheckpointTensor:
    """Return a tensor that the format can say.

    Raises:
        TypeError: A name, a dtype or a length of another type.
        ValueError: An empty name or one that is no UTF-8, an unknown dtype, a negative length, more
            than 32 dimensions.
    """
    name, dtype, shape = given
    tensor = CheckpointTensor(name, dtype, tuple(shape))
    _refuse_name(tensor.name)
    if tensor.dtype not in ITEM_SIZES:
        raise ValueError(f"dtype: expected one of {', '.join(ITEM_SIZES)}, found {dtype!r}")
    _refuse_shape(tensor.shape)
    return tensor


def _refuse_name(name: object) -> None:
    if type(name) is not str:
        raise TypeError(f"name: expected str, found {name!r}")
    if not name or not _is_utf8(name):
        raise ValueError(f"name: expected UTF-8 text that is not empty, found {name!r}")


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _refuse_shape(shape: tuple[object, ...]) -> None:
    for length in shape:
        if type(length) is not int:
            raise TypeError(f"shape: expected lengths of type int, found {length!r}")
        if length < 0:
            raise ValueError(f"shape: expected lengths of 0 or more, found {length}")
    if len(shape) > _MAX_DIMENSIONS:
        raise ValueError(
            f"shape: expected {_MAX_DIMENSIONS} dimensions or less, found {len(shape)}"
        )
