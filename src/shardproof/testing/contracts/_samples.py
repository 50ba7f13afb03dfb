"""Text for a sample, by which two are known to be equal; it is made without pytest."""

import array
import hashlib
import sys
from collections.abc import Mapping
from typing import Any


def fingerprint(sample: Any) -> str:
    """Return text that is equal for equal samples: of numbers, arrays, tensors, and nests of them.

    Arrays and tensors are known by their ``dtype``, ``shape`` and bytes. What is none of these is
    known by its repr.

    Example:
        >>> fingerprint({"x": [1, 2.0]}) == fingerprint({"x": [1, 2.0]})
        True
    """
    if isinstance(sample, Mapping):
        items = (f"{key!r}: {fingerprint(value)}" for key, value in sample.items())
        return "{" + ", ".join(sorted(items)) + "}"
    if isinstance(sample, (list, tuple)):
        return "[" + ", ".join(map(fingerprint, sample)) + "]"
    if isinstance(sample, (bytes, bytearray, memoryview, array.array)):
        view = memoryview(sample)
        return f"{view.format}{view.shape}:{_digest(view.tobytes())}"
    if hasattr(sample, "dtype") and hasattr(sample, "shape"):
        about, values = f"{sample.dtype}{tuple(sample.shape)}", sample
        if not hasattr(values, "tobytes"):  # a tensor of torch; numpy has no bfloat16, but uint8
            tensor = values.detach().cpu().contiguous().reshape(-1)
            values = tensor.view(sys.modules["torch"].uint8).numpy()
        is_any = values.dtype == object  # whose bytes are addresses
        return f"{about}:{_digest(repr(values.tolist()).encode() if is_any else values.tobytes())}"
    return repr(sample)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
