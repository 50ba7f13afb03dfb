"""Name the types of a tensor's elements, and find them in numpy and torch."""

import importlib.util
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["ITEM_SIZES", "can_be", "from_torch", "is_tensor", "name_of", "numpy_dtype", "to_torch"]

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
    """Return the name of a type in the format; one that has none is a `TypeError`."""
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


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def from_torch(tensor: Any) -> "tuple[str, np.ndarray[Any, np.dtype[np.uint8]]]":
    """Return the format's name of a tensor's type, and its bytes.

    Nothing is copied of a contiguous tensor in the memory of the processor.

    Raises:
        TypeError: It is sparse, quantized or without data, or has a type that the format lacks.
    """
    import torch  # noqa: PLC0415 - somebody has it, since there is a tensor

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


def to_torch(array: "np.ndarray[Any, Any]", dtype: str) -> Any:
    """Return the tensor that has the memory of an array, with the type of that name."""
    import torch  # noqa: PLC0415 - the caller asked for its tensors

    raw = torch.from_numpy(array.reshape(-1).view(np.uint8))
    return raw.view(getattr(torch, dtype)).reshape(array.shape)
