"""As what batches are delivered: arrays or tensors, of which type, and where."""

import dataclasses
from types import ModuleType
from typing import Literal, Protocol, runtime_checkable

from shardproof._base.arguments import count
from shardproof.loaders.io._memory import Bytes, fresh
from shardproof.loaders.io._row_source import Batch
from shardproof.loaders.io._sending import MOST_BEHIND, Device
from shardproof.loaders.order._selection import Framework

Dtype = Literal["float32", "float16", "bfloat16"]


@runtime_checkable
class TorchDevice(Protocol):
    """What a ``torch.device`` is, without torch."""

    @property
    def type(self) -> str:
        """Its kind."""

    @property
    def index(self) -> int | None:
        """Which one of its kind."""


DeviceName = str | TorchDevice


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """As what batches are delivered; plain data, so that other processes can have it."""

    framework: Framework = "numpy"
    device: str = "cpu"
    dtype: Dtype | None = None
    pin_memory: bool = False
    n_ahead: int = 0

    @property
    def is_on_host(self) -> bool:
        """Whether batches stay in the memory into which they are read, or are cast there."""
        return self.device == "cpu"

    @property
    def n_under_way(self) -> int:
        """How many batches on the host a device may be copying, or have copied, at most."""
        return 0 if self.is_on_host else self.n_ahead + 1 + MOST_BEHIND + 1

    def memory(self, n_bytes: int) -> Bytes:
        """Return memory of the host, from which a device can copy at once if it has to."""
        if self.is_on_host and not self.pin_memory:
            return fresh(n_bytes)
        from shardproof.loaders import _cuda  # noqa: PLC0415 - needs torch, which is there

        return _cuda.pinned(n_bytes)

    def arrays(self, batch: Batch, dtype: str) -> Batch:
        """Return a batch of a directory, whose values are of a type, as it is on the host."""
        if self.framework == "numpy":
            return batch
        module = torch_module("framework='torch'")
        tensors: Batch = module.tensors(batch, dtype, self.dtype, pin_memory=self.pin_memory)
        return tensors

    def open_device(self, dtype: str) -> Device:
        """Return the device, for batches of a directory whose values are of a type."""
        from shardproof.loaders import _cuda  # noqa: PLC0415 - needs torch, which is there

        return _cuda.CudaDevice(self.device, dtype, self.dtype)


def delivery_of(
    framework: Framework,
    device: DeviceName,
    dtype: Dtype | None,
    *,
    pin_memory: bool = False,
    n_ahead: int = 0,
) -> Delivery:
    """Return it, or refuse what doesn't fit together or what this machine can't do."""
    count("n_ahead", n_ahead)
    delivery = Delivery(framework, str(device), dtype, pin_memory, n_ahead)
    is_pinned, is_moved = pin_memory, not delivery.is_on_host
    given = {"device": is_moved, "dtype": dtype is not None, "pin_memory": is_pinned}
    if framework == "numpy" and (for_tensors := [name for name in given if given[name]]):
        raise ValueError(f"{for_tensors[0]}: for tensors only: pass framework='torch' too")
    if framework == "torch":
        torch_module("framework='torch'")
    if is_pinned and is_moved:
        raise ValueError("pin_memory: for batches on the host: leave it out, or leave out device")
    if is_pinned or is_moved:
        from shardproof.loaders import _cuda  # noqa: PLC0415 - needs torch, which is there

        _cuda.refuse_device(*(("device", str(device)) if is_moved else ("pin_memory",)))
    return delivery


def torch_module(wanted: str) -> ModuleType:
    """Return our module that needs torch, or raise `ModuleNotFoundError` with what is wanted."""
    try:
        from shardproof.loaders import _torch  # noqa: PLC0415 - only where it is asked for
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        problem = f"{wanted} needs torch, which is not installed: pip install torch"
        raise ModuleNotFoundError(problem, name="torch") from error
    return _torch
