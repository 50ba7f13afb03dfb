"""Provide memory for loaded tensors: new, given by the caller, or a mapped file."""

import mmap
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from shardproof._base.messages import quoted, shown
from shardproof.checkpoint.format._dtypes import numpy_dtype
from shardproof.checkpoint.format._metadata import ShardEntry, TensorEntry
from shardproof.checkpoint.format._torch import to_torch
from shardproof.checkpoint.load._shard_reader import prove_shard, prove_tensor, read_shard
from shardproof.checkpoint.storage._local_storage import LocalFile
from shardproof.checkpoint.storage._open_shard import open_shard
from shardproof.checkpoint.storage._storage import Location, StoredFile

__all__ = [
    "Array",
    "Framework",
    "as_framework",
    "checked_out",
    "mapped_tensors",
    "new_array",
    "tensors_in",
    "view_of",
]

Array = np.ndarray[Any, np.dtype[Any]]

Framework = Literal["numpy", "torch"]


def new_array(tensor: TensorEntry) -> Array:
    """Return new memory for a tensor; its size was compared with that of the file."""
    return np.empty(tensor.shape, numpy_dtype(tensor.dtype))


def checked_out(array: Array, tensor: TensorEntry) -> Array:
    """Return an array that the caller gave, if the tensor can be read into it.

    Raises:
        TypeError: It has another type.
        ValueError: It has another shape or order, or can't be written.
    """
    expected = numpy_dtype(tensor.dtype)
    where = f"out[{quoted(tensor.name)}]"
    if array.dtype != expected:
        raise TypeError(f"{where}: expected {expected}, found {array.dtype}")
    if array.shape != tensor.shape:
        raise ValueError(f"{where}: expected the shape {tensor.shape}, found {array.shape}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{where}: expected an array in C order that can be written")
    return array


def view_of(array: Array) -> memoryview:
    """Return the bytes of an array in C order."""
    return array.reshape(-1).view(np.uint8).data


def tensors_in(
    file: StoredFile,
    shard: ShardEntry,
    *,
    framework: Framework,
    prove: bool = True,
    digest_threads: int | None = None,
) -> dict[str, Any]:
    """Read all tensors of a shard into arrays of their own; arguments as for `read_shard`."""
    arrays = {tensor.name: new_array(tensor) for tensor in shard.tensors}
    views = {name: view_of(array) for name, array in arrays.items()}
    read_shard(file, shard, views, prove=prove, digest_threads=digest_threads)
    return {t.name: as_framework(arrays[t.name], t, framework) for t in shard.tensors}


def as_framework(array: Array, tensor: TensorEntry, framework: Framework) -> Any:
    """Return an array as the library that was asked for has it, in the same memory."""
    return to_torch(array, tensor.dtype) if framework == "torch" else array


def mapped_tensors(
    location: Location, shard: ShardEntry, tensors: Sequence[TensorEntry], *, prove: bool
) -> dict[str, Array]:
    """Return read-only arrays whose memory is a file's; the file is open as long as they live.

    What is proven is read once to prove it, and lies in the cache of the system then.

    Raises:
        Cancelled: The work was told to stop.
        CheckpointError: What is read is not what was saved.
        ValueError: The storage is not local.
    """
    with open_shard(location, shard) as file:
        if not isinstance(file, LocalFile):
            raise ValueError(f"mapped: expected a local file, found '{shown(file.path)}'")
        if prove and all(tensor.digest for tensor in tensors):
            for tensor in tensors:
                prove_tensor(file, tensor)
        elif prove:
            prove_shard(file, shard)
        memory = mmap.mmap(file.fd, shard.file_size, prot=mmap.PROT_READ)
    return {tensor.name: _mapped(memory, tensor) for tensor in tensors}


def _mapped(memory: mmap.mmap, tensor: TensorEntry) -> Array:
    if not tensor.size:
        return new_array(tensor)
    dtype = numpy_dtype(tensor.dtype)
    count = tensor.size // dtype.itemsize
    return np.frombuffer(memory, dtype, count, tensor.offset).reshape(tensor.shape)
