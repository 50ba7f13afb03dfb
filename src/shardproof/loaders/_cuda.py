"""Batches on a CUDA device (ROCm's too): copied from pinned memory, on a stream of their own."""

import contextlib
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from shardproof._base.messages import quoted
from shardproof.loaders._torch import tensors
from shardproof.loaders.io._row_source import Batch

_NO_CUDA = (
    "{}: torch {} finds no CUDA device here: install a build of torch for the GPU "
    "(https://pytorch.org/get-started), and see that nvidia-smi lists one"
)


def refuse_device(argument: str, name: str = "cuda") -> None:
    """Raise a `ValueError` for a device that is not there, or is of another kind."""
    device = None
    with contextlib.suppress(RuntimeError):  # it is no device's name
        device = torch.device(name)
    if device is None or device.type != "cuda":
        raise ValueError(f"{argument}: expected 'cpu', 'cuda' or 'cuda:1', found {quoted(name)}")
    if not torch.cuda.is_available():
        raise ValueError(_NO_CUDA.format(argument, torch.__version__))
    n_devices = torch.cuda.device_count()
    if (device.index or 0) >= n_devices:
        raise ValueError(
            f"{argument}: expected one of {n_devices} CUDA devices, found {quoted(name)}"
        )


def pinned(n_bytes: int) -> npt.NDArray[np.uint8]:
    """Return memory that a device copies from without the processor's help."""
    memory = torch.empty(n_bytes, dtype=torch.uint8, device="cpu", pin_memory=True)
    return cast("npt.NDArray[np.uint8]", memory.numpy())


class CudaDevice:
    """A `Device` by a stream of its own, for batches of a directory."""

    def __init__(self, name: str, dtype: str, wanted: str | None) -> None:
        self._dtype, self._wanted = dtype, None if wanted is None else getattr(torch, wanted)
        self._stream = torch.cuda.Stream(torch.device(name))
        self._device = self._stream.device  # "cuda" is another device in another thread

    def send(self, batch: Batch) -> "Sent":
        """Begin to copy a batch, and then to cast its values."""
        found: dict[str, Any] = dict(tensors(batch, self._dtype))
        with torch.cuda.stream(self._stream):
            for name, tensor in found.items():
                # Of what is not pinned yet torch keeps the copy until the device has it.
                host = tensor if tensor.is_pinned() else tensor.pin_memory()
                found[name] = host.to(self._device, non_blocking=True)
            found["act"] = found["act"].to(self._wanted or found["act"].dtype)
        return Sent(found, self._stream.record_event(), self._device)

    def now(self) -> Any:
        """Return an event of the caller's stream."""
        return torch.cuda.current_stream(self._device).record_event()


class Sent:
    """A batch that is being copied."""

    def __init__(self, batch: dict[str, Any], event: Any, device: Any) -> None:
        self._batch, self._event, self._device = batch, event, device

    def receive(self) -> Batch:
        """Return the batch; the caller's stream waits for it, and the memory for that stream."""
        stream = torch.cuda.current_stream(self._device)
        stream.wait_event(self._event)
        batch, self._batch = self._batch, {}
        for tensor in batch.values():
            tensor.record_stream(stream)
        return cast("Batch", batch)

    def synchronize(self) -> None:
        self._event.synchronize()
