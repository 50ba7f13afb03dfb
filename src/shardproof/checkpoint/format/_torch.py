"""Convert tensors of torch to and from arrays of numpy, without a copy, where torch is there."""

import sys
from typing import Any

import numpy as np

from shardproof.checkpoint.format._dtypes import ITEM_SIZES

__all__ = ["from_torch", "is_tensor", "to_torch"]


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
