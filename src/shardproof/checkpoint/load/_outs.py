"""Check the arrays that callers give to read into, before anything is read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from shardproof._base.messages import listed, quoted
from shardproof.checkpoint.format._dtypes import Array, numpy_dtype
from shardproof.checkpoint.format._metadata import ShardEntry, TensorEntry

ShardOuts = Sequence[Mapping[str, Array]]
"""Arrays for all tensors of some shards."""


class _Out(NamedTuple):
    """An array, how the caller can say it, and what is to be read into it."""

    said: str
    array: Array
    tensor: TensorEntry


class _Misfit(NamedTuple):
    """Why something can't be read into."""

    text: str
    is_of_type: bool = False


def checked_outs(out: Mapping[str, Array], wanted: Mapping[str, TensorEntry]) -> dict[str, Array]:
    """Return those of the arrays that are for tensors, if each can be read into its own."""
    given = {name: out[name] for name in wanted if name in out}
    _refuse(_unfit([_Out(_said("out", name), given[name], wanted[name]) for name in given]))
    return given


def checked_shard_outs(said: Sequence[str], outs: ShardOuts, shards: Sequence[ShardEntry]) -> None:
    """Refuse arrays unless there is one for each tensor of each shard, and no other.

    ``said`` is how the caller can say those of each shard. Raises as `checked_outs`; a name that
    lacks, or that no tensor has, is a `ValueError`. All that is wrong is in one error.
    """
    found: list[_Misfit] = []
    pairs: list[_Out] = []
    for where, out, shard in zip(said, outs, shards, strict=True):
        wanted = {tensor.name: tensor for tensor in shard.tensors}
        found += (
            _Misfit(f"{_said(where, name)}: expected an array, found nothing")
            for name in wanted
            if name not in out
        )
        found += (
            _Misfit(f"{_said(where, name)}: expected the name of a tensor of rank {shard.rank}")
            for name in out
            if name not in wanted
        )
        names = [name for name in wanted if name in out]
        pairs += (_Out(_said(where, name), out[name], wanted[name]) for name in names)
    _refuse([*found, *_unfit(pairs)])


def _said(where: str, name: str) -> str:
    return f"{where}[{quoted(name)}]"


def _refuse(misfits: Iterable[_Misfit]) -> None:
    found = [*misfits]
    if not found:
        return
    texts = [misfit.text for misfit in found]
    kind = TypeError if all(misfit.is_of_type for misfit in found) else ValueError
    raise kind(texts[0] if len(texts) == 1 else listed("out: these can't be read into", texts))


def _unfit(outs: Sequence[_Out]) -> Iterator[_Misfit]:
    fit = []
    for out in outs:
        if misfit := _misfit(out):
            yield misfit
        elif out.array.nbytes:  # an empty one has no memory
            fit.append(out)
    # In C order, so an array is all of its memory.
    last_end, last = 0, ""  # of those until here, the one that ends last
    for out in sorted(fit, key=_begin):
        end = _begin(out) + out.array.nbytes
        if _begin(out) < last_end:
            both = f"found some in {last} and {out.said}"
            yield _Misfit(f"out: expected arrays that have no memory in common, {both}")
        if end > last_end:
            last_end, last = end, out.said


def _begin(out: _Out) -> int:
    address: int = out.array.__array_interface__["data"][0]
    return address


def _misfit(out: _Out) -> _Misfit | None:
    said, array, tensor = out
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        kind = type(array).__name__
        return _Misfit(f"{said}: expected an array of numpy, found {kind}", is_of_type=True)
    expected = numpy_dtype(tensor.dtype)
    if array.dtype != expected:
        return _Misfit(f"{said}: expected {expected}, found {array.dtype}", is_of_type=True)
    if array.shape != tensor.shape:
        return _Misfit(f"{said}: expected the shape {tensor.shape}, found {array.shape}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        return _Misfit(f"{said}: expected an array in C order that can be written")
    return None
