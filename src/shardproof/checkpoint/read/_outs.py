"""Check the arrays that callers give to read into, before anything is read."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._dtypes import Array, numpy_dtype
from shardproof.checkpoint.format._metadata import ShardEntry, TensorEntry

ShardOuts = Sequence[Mapping[str, Array]]
"""Arrays for all tensors of some shards."""


def checked_outs(out: Mapping[str, Array], wanted: Mapping[str, TensorEntry]) -> dict[str, Array]:
    """Return those of the arrays that are for tensors, if each can be read into its own."""
    given = {name: out[name] for name in wanted if name in out}
    for name, array in given.items():
        _refuse_misfit(_said("out", name), array, wanted[name])
    _refuse_shared({_said("out", name): array for name, array in given.items()})
    return given


def checked_shard_outs(said: Sequence[str], outs: ShardOuts, shards: Sequence[ShardEntry]) -> None:
    """Refuse arrays, said to be these, unless there is one for each tensor, and no other."""
    arrays: dict[str, Array] = {}
    for where, out, shard in zip(said, outs, shards, strict=True):
        wanted = {tensor.name: tensor for tensor in shard.tensors}
        for name in [*wanted, *out]:
            if name not in out:
                raise ValueError(f"{_said(where, name)}: expected an array, found nothing")
            if name not in wanted:
                expected = f"the name of a tensor of rank {shard.rank}"
                raise ValueError(f"{_said(where, name)}: expected {expected}")
        for name, tensor in wanted.items():
            arrays[_said(where, name)] = out[name]
            _refuse_misfit(_said(where, name), out[name], tensor)
    _refuse_shared(arrays)


def _said(where: str, name: str) -> str:
    return f"{where}[{quoted(name)}]"


def _refuse_misfit(said: str, array: Array, tensor: TensorEntry) -> None:
    """Raise `TypeError` or `ValueError` for an array into which a tensor can't be read."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{said}: expected an array of numpy, found {type(array).__name__}")
    expected = numpy_dtype(tensor.dtype)
    if array.dtype != expected:
        raise TypeError(f"{said}: expected {expected}, found {array.dtype}")
    if array.shape != tensor.shape:
        raise ValueError(f"{said}: expected the shape {tensor.shape}, found {array.shape}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{said}: expected an array in C order that can be written")


def _refuse_shared(arrays: Mapping[str, Array]) -> None:
    """Raise `ValueError` if two arrays, by how the caller can say them, have memory in common."""
    # In C order, so an array is all of its memory; an empty one has none.
    spans = sorted((_begin(array), array.nbytes, said) for said, array in arrays.items())
    for (begin, n_bytes, said), (after, _, other) in itertools.pairwise(s for s in spans if s[1]):
        if after < begin + n_bytes:
            both = f"found some in {said} and {other}"
            raise ValueError(f"out: expected arrays that have no memory in common, {both}")


def _begin(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
