"""The bytes of torch's tensors, in memory and on devices; imported where there is torch."""

import collections
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch

from shardproof.checkpoint import _format
from shardproof.checkpoint.storage._filling import Memory, Target, into

_FETCHED_BYTES = 2**22  # at once, from a device; a few such wait to be written
_MOST_UNDER_WAY = 16  # copies of pieces to a device


def from_torch(tensor: Any) -> tuple[str, Any]:
    """Return the format's name of a tensor's type, and its bytes; `TypeError` if it has none."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        found = f"{tensor.layout} {tensor.dtype} on {tensor.device}"
        raise TypeError(f"expected a dense tensor with data, found {found}")
    if dtype not in _format.ITEM_SIZES:
        raise TypeError(f"dtype: expected one of {', '.join(_format.ITEM_SIZES)}, found {dtype}")
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.stride(0) != 1:  # of one element, which counts as contiguous
        flat = flat.clone(memory_format=torch.contiguous_format)
    return dtype, flat.view(torch.uint8)


def refuse_unfillable(tensor: Any) -> None:
    """Raise `TypeError` for a tensor of another kind, or on a device that is not known."""
    if type(tensor) not in {torch.Tensor, torch.nn.Parameter}:
        raise TypeError(f"expected a plain tensor, found {type(tensor).__name__}")
    if tensor.device.type not in {"cpu", "cuda", "meta"}:
        raise TypeError(f"expected a tensor of the host or of CUDA, found one on {tensor.device}")


def to_torch(array: "np.ndarray[Any, Any]", dtype: str) -> Any:
    """Return the tensor that has the memory of an array, with the type of that name."""
    raw = torch.from_numpy(array.reshape(-1).view(np.uint8))
    return raw.view(getattr(torch, dtype)).reshape(array.shape)


def pieces_of(flat: Any) -> Iterator[memoryview]:
    """Yield bytes; of a device the next ones come while these are used."""
    if not flat.is_cuda:
        yield flat.cpu().numpy().data
        return
    # Pinned memory of torch's, which has it again as soon as nothing holds it.
    stream, begun = torch.cuda.current_stream(flat.device), collections.deque[Any]()
    for part in (*flat.split(_FETCHED_BYTES), None):
        if part is not None:
            piece = torch.empty(len(part), dtype=torch.uint8, device="cpu", pin_memory=True)
            begun.append((piece.copy_(part, non_blocking=True), stream.record_event()))
        if begun and (part is None or len(begun) > 1):
            piece, event = begun.popleft()
            event.synchronize()
            yield piece.numpy().data


class Copies:
    """Bytes on their way to tensors, of a device by pinned memory; in the end all are there."""

    def __init__(self) -> None:
        self._streams = dict[torch.device, Any]()
        self._under_way = collections.deque[Any]()

    def target(self, tensor: Any) -> Target:
        """Return the bytes of a tensor as a target."""
        _, flat = from_torch(tensor)
        if not flat.is_cuda:
            return into(flat.numpy().data)
        if flat.device not in self._streams:
            torch.cuda.synchronize(flat.device)
            self._streams[flat.device] = torch.cuda.current_stream(flat.device)
        return lambda at, n: self._piece(flat[at : at + n])

    def _piece(self, part: Any) -> Memory:
        # torch does not have it again before the copy has ended.
        piece = torch.empty(len(part), dtype=torch.uint8, device="cpu", pin_memory=True)

        def send() -> None:
            if len(self._under_way) >= _MOST_UNDER_WAY:
                self._under_way.popleft().synchronize()
            part.copy_(piece, non_blocking=True)
            self._under_way.append(self._streams[part.device].record_event())

        return piece.numpy().data, send

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for device in self._streams:
            torch.cuda.synchronize(device)
