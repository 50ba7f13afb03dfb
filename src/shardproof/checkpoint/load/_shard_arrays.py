"""A whole shard is read into arrays of its own."""

import threading
from typing import Any, Literal

import numpy as np

from shardproof.checkpoint.format._metadata import ShardEntry, TensorEntry
from shardproof.checkpoint.format._torch import to_torch
from shardproof.checkpoint.load._destinations import fresh, view_of
from shardproof.checkpoint.load._shard_reader import read_shard
from shardproof.checkpoint.storage._storage import StoredFile

__all__ = ["Framework", "given_away", "tensors_in"]

Framework = Literal["numpy", "torch"]


def tensors_in(
    file: StoredFile,
    shard: ShardEntry,
    *,
    framework: Framework,
    verify: bool = True,
    stop: threading.Event | None = None,
    digest_threads: int | None = None,
) -> dict[str, Any]:
    """Return the tensors of a shard whose size and header are right, by name."""
    arrays = {tensor.name: fresh(tensor) for tensor in shard.tensors}
    views = {name: view_of(array) for name, array in arrays.items()}
    read_shard(file, shard, views, verify=verify, stop=stop, digest_threads=digest_threads)
    return {t.name: given_away(arrays[t.name], t, framework) for t in shard.tensors}


def given_away(array: "np.ndarray[Any, Any]", tensor: TensorEntry, framework: Framework) -> Any:
    """Return an array as the library that was asked for has it."""
    return to_torch(array, tensor.dtype) if framework == "torch" else array
