"""Refuse what can't be saved, and give the bytes of tensors in pieces, to be written to a file."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from shardproof._base.arguments import count
from shardproof._base.messages import quoted, told
from shardproof.checkpoint.format._dtypes import ITEM_SIZES, from_torch, is_tensor, name_of
from shardproof.checkpoint.format._metadata import MAX_NAME, MAX_NUMBER

__all__ = ["Tensor", "refuse_step", "refuse_text", "tensors_of"]

_BLOCK_BYTES = 2**24

Bytes = bytes | memoryview


def refuse_step(step: int | None) -> None:
    """Raise a `ValueError` unless a step is 0 or more, or not told."""
    if step is not None:
        count("step", step, 0, MAX_NUMBER)


def refuse_text(name: str, text: str, expected: str = "text") -> None:
    """Raise a `ValueError` unless a text can be written in UTF-8, as records and metadata are."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"{name}: expected {expected} in Unicode, found {quoted(text)}")


class Tensor(NamedTuple):
    """A tensor to be written.

    Attributes:
        name: Its name.
        dtype: The type of its elements, by the format's name.
        shape: Its shape.
        pieces: Gives its bytes, little endian in C order, in pieces of any size.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[Bytes]]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]


def tensors_of(arrays: Mapping[str, Any]) -> Iterable[Tensor]:
    """Return arrays of numpy and tensors of torch as what is to be written.

    What a dict holds is looked at at once. Another mapping may make each array when it is asked
    for: it is asked for one after the other, and none is kept.

    Raises:
        TypeError: One is neither, or its elements have a type that the format doesn't have.
        ValueError: A name that the format doesn't allow.
    """
    for name in arrays:
        if not isinstance(name, str):
            raise TypeError(f"arrays: expected names as keys, found {type(name).__name__}")
        if not 0 < len(name) <= MAX_NAME:
            expected = f"names of 1 to {MAX_NAME} characters"
            raise ValueError(f"arrays: expected {expected}, found {len(name)}")
        refuse_text("arrays", name, "names")
    tensors = (_tensor_of(str(name), arrays[name]) for name in arrays)
    return list(tensors) if isinstance(arrays, dict) else tensors


def _tensor_of(name: str, array: Any) -> Tensor:
    try:
        if is_tensor(array):
            dtype, raw = from_torch(array)
            return Tensor(name, dtype, tuple(array.shape), lambda: [_bytes_of(raw)])
        if not isinstance(array, (np.ndarray, np.generic)) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"expected an array, found {type(array).__name__}")
        numbers = np.asarray(array)
        return Tensor(name, name_of(numbers.dtype), numbers.shape, lambda: _pieces(numbers))
    except TypeError as error:
        raise TypeError(f"arrays[{quoted(name)}]: {told(error)}") from None


def _pieces(array: "np.ndarray[Any, Any]") -> Iterator[memoryview]:
    little = array.dtype.newbyteorder("<")
    if array.flags.c_contiguous and array.dtype == little:
        yield _bytes_of(array)
        return
    # Block by block, since a copy of all of it may not fit.
    flat = array.flat
    step = max(1, _BLOCK_BYTES // array.dtype.itemsize)
    for start in range(0, array.size, step):
        yield _bytes_of(np.ascontiguousarray(flat[start : start + step], dtype=little))


def _bytes_of(array: "np.ndarray[Any, Any]") -> memoryview:
    return array.reshape(-1).view(np.uint8).data
