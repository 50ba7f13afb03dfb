"""Copies of arrays in the memory of the host, which go on being what the arrays were."""

import collections
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from shardproof._base.fanout import in_threads, threads_for_bytes
from shardproof._base.work import apart
from shardproof.checkpoint.save._shard_writer import tensors_of

_COPIED_BYTES = 2**22  # at once


class Snapshots:
    """Takes one copy of some arrays after the other, into the same memory where they fit."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}

    def take(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Copy arrays and tensors; return when these may be changed. Raise as `tensors_of`."""
        torch: Any = sys.modules.get("torch")  # without which there is no tensor of it
        taken, devices = {}, set()
        for name in arrays:
            array = arrays[name]
            if torch is not None and isinstance(array, torch.Tensor):
                taken[name] = self._of_tensor(torch, name, array)
                devices |= {array.device} if array.is_cuda else set()
            else:
                tensors_of({name: array})
                kept = self._kept.get(name)
                if not isinstance(kept, np.ndarray) or _kind(kept) != _kind(array):
                    kept = np.empty_like(array, order="C", subok=False)
                _copy(kept, np.asarray(array))
                taken[name] = kept
        for device in devices:
            torch.cuda.current_stream(device).synchronize()
        self._kept = taken
        return taken

    def _of_tensor(self, torch: Any, name: str, tensor: Any) -> Any:
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            tensors_of({name: tensor})  # which refuses it
        kept, tensor = self._kept.get(name), tensor.detach()
        if not isinstance(kept, torch.Tensor) or _kind(kept) != _kind(tensor):
            like = {"dtype": tensor.dtype, "pin_memory": tensor.is_cuda}
            kept = torch.empty(tensor.shape, device="cpu", **like)
        return kept.copy_(tensor, non_blocking=True)


def _copy(kept: Any, array: Any) -> None:
    """Copy an array, by threads if it is large."""
    if array.nbytes <= _COPIED_BYTES or not array.flags.c_contiguous:
        np.copyto(kept, array)
        return
    flat, source, step = kept.reshape(-1), array.reshape(-1), _COPIED_BYTES // array.itemsize
    parts = [slice(at, at + step) for at in range(0, array.size, step)]

    def copy(part: slice) -> None:
        np.copyto(flat[part], source[part])

    n_threads = min(threads_for_bytes(), len(parts))
    name = "shardproof-snapshot"
    apart(lambda _: collections.deque(in_threads(copy, parts, n_threads=n_threads, name=name), 0))


def _kind(array: Any) -> tuple[object, object]:
    return array.shape, array.dtype
