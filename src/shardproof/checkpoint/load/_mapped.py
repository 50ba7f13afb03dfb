"""Tensors that are mapped into memory instead of read, for who takes the risk."""

import mmap
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardproof._base.messages import shown
from shardproof.checkpoint.format._dtypes import numpy_dtype
from shardproof.checkpoint.format._metadata import ShardEntry, TensorEntry
from shardproof.checkpoint.load._destinations import fresh
from shardproof.checkpoint.load._shard_reader import prove_shard, prove_tensor
from shardproof.checkpoint.storage._local_storage import LocalFile
from shardproof.checkpoint.storage._open_shard import open_shard
from shardproof.checkpoint.storage._storage import Place

__all__ = ["mapped_tensors"]


def mapped_tensors(
    place: Place,
    shard: ShardEntry,
    tensors: Sequence[TensorEntry],
    *,
    verify: bool,
    stop: threading.Event | None = None,
) -> dict[str, "np.ndarray[Any, Any]"]:
    """Return read-only arrays whose memory is a file's; the file is open as long as they live.

    What is proven is read once to prove it, and lies in the cache of the system then.

    Raises:
        CheckpointError: What is read is not what was saved.
        StoppedError: It is wanted no more.
        ValueError: The storage is not local.
    """
    with open_shard(place, shard) as file:
        if not isinstance(file, LocalFile):
            raise ValueError(f"mapped: expected a local file, found '{shown(file.path)}'")
        if verify and all(tensor.digest for tensor in tensors):
            for tensor in tensors:
                prove_tensor(file, tensor, stop=stop)
        elif verify:
            prove_shard(file, shard, stop=stop)
        memory = mmap.mmap(file.fd, shard.file_size, prot=mmap.PROT_READ)
    return {tensor.name: _array(memory, tensor) for tensor in tensors}


def _array(memory: mmap.mmap, tensor: TensorEntry) -> "np.ndarray[Any, Any]":
    if not tensor.size:
        return fresh(tensor)
    dtype = numpy_dtype(tensor.dtype)
    count = tensor.size // dtype.itemsize
    return np.frombuffer(memory, dtype, count, tensor.offset).reshape(tensor.shape)
