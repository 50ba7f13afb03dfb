"""Name the types of a tensor's elements, and find them in numpy and torch."""

import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

_NUMPY = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_FLOAT8 = tuple(f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"))
_MAX_BYTES = 2**63 - 1

ITEM_SIZES = {name: np.dtype(name).itemsize for name in _NUMPY}
ITEM_SIZES |= {"bfloat16": 2} | dict.fromkeys(_FLOAT8, 1)
"""Bytes of one element, by the name of its type."""


def can_be(shape: Sequence[int], dtype: str) -> bool:
    """Return whether an array can have a shape; numpy counts bytes without lengths that are 0."""
    return math.prod(filter(None, shape)) * ITEM_SIZES[dtype] <= _MAX_BYTES


def name_of(dtype: "np.dtype[Any]") -> str:
    """Return the name of a type in the format; one that has none is a `TypeError`."""
    if dtype.name not in ITEM_SIZES or dtype.itemsize != ITEM_SIZES[dtype.name]:
        expected = ", ".join(sorted(ITEM_SIZES))
        raise TypeError(f"dtype: expected one of {expected}, found {dtype}")
    return dtype.name


def numpy_dtype(name: str) -> "np.dtype[Any]":
    """Return the type in numpy, little endian; without ml_dtypes, unsigned integers for others."""
    if name in _NUMPY:
        return np.dtype(name).newbyteorder("<")
    if importlib.util.find_spec("ml_dtypes"):
        import ml_dtypes  # noqa: PLC0415 - where it is installed

        if hasattr(ml_dtypes, name):
            dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return dtype
    return np.dtype(f"<u{ITEM_SIZES[name]}")


def view_of(array: Array) -> memoryview:
    """Return the bytes of an array in C order."""
    return array.reshape(-1).view(np.uint8).data


def from_torch(tensor: Any) -> tuple[str, Array]:
    """Return the format's name of a tensor's type, and its bytes; `TypeError` if it has none."""
    import torch  # noqa: PLC0415 - the caller has it, since there is a tensor

    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        found = f"{tensor.layout} {tensor.dtype} on {tensor.device}"
        raise TypeError(f"expected a dense tensor with data, found {found}")
    if dtype not in ITEM_SIZES:
        raise TypeError(f"dtype: expected one of {', '.join(ITEM_SIZES)}, found {dtype}")
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # of one element, which counts as contiguous
        flat = flat.clone(memory_format=torch.contiguous_format)
    return dtype, flat.view(torch.uint8).numpy()


def to_torch(array: Array, dtype: str) -> Any:
    """Return the tensor that has the memory of an array, with the type of that name."""
    import torch  # noqa: PLC0415 - the caller asked for its tensors

    raw = torch.from_numpy(array.reshape(-1).view(np.uint8))
    return raw.view(getattr(torch, dtype)).reshape(array.shape)
