"""Memory that the caller gives for tensors: arrays, and tensors of torch on any device."""

import importlib.util
import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardproof._base.messages import quoted, told
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import ShardEntry, TensorEntry

Out = Any  # an array of numpy, or a tensor of torch
ShardOuts = Sequence[Mapping[str, Out]]  # memory for all tensors of some shards


def checked_outs(out: Mapping[str, Out], wanted: Mapping[str, TensorEntry]) -> dict[str, Out]:
    """Return those of the arrays that are for tensors, if each can be read into its own."""
    given = {name: out[name] for name in wanted if name in out}
    _refuse_misfits({_said("out", name): (given[name], wanted[name]) for name in given})
    return given


def check_shard_outs(said: Sequence[str], outs: ShardOuts, shards: Sequence[ShardEntry]) -> None:
    """Refuse arrays, said to be these, unless there is one for each tensor, and no other."""
    pairs: dict[str, tuple[Out, TensorEntry]] = {}
    for where, out, shard in zip(said, outs, shards, strict=True):
        wanted = {tensor.name: tensor for tensor in shard.tensors}
        for name in [*wanted, *out]:
            if name not in out:
                raise ValueError(f"{_said(where, name)}: expected an array, found nothing")
            if name not in wanted:
                expected = f"the name of a tensor of rank {shard.rank}"
                raise ValueError(f"{_said(where, name)}: expected {expected}")
            pairs[_said(where, name)] = out[name], wanted[name]
    _refuse_misfits(pairs)


def _said(where: str, name: str) -> str:
    return f"{where}[{quoted(name)}]"


def _refuse_misfits(pairs: Mapping[str, tuple[Out, TensorEntry]]) -> None:
    """Raise for arrays, by how the caller can say them, into which tensors can't be read."""
    spans = []
    for said, (out, tensor) in pairs.items():
        span = _span_of_tensor if is_tensor(out) else _span_of_array
        where, begin, n_bytes = span(said, out, tensor)
        if n_bytes:
            spans.append((where, begin, n_bytes, said))
    spans.sort()
    for (where, begin, n_bytes, said), (place, after, _, other) in itertools.pairwise(spans):
        if where == place and after < begin + n_bytes:
            both = f"found some in {said} and {other}"
            raise ValueError(f"out: expected arrays that have no memory in common, {both}")


def is_tensor(out: Out) -> bool:
    """Whether it is a tensor of torch."""
    torch = sys.modules.get("torch")  # without which there is none
    return torch is not None and isinstance(out, torch.Tensor)


Span = tuple[str, int, int]  # where memory is: on which device, from where on, and how many bytes


def _span_of_array(said: str, array: Out, tensor: TensorEntry) -> Span:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{said}: expected an array of numpy, found {type(array).__name__}")
    expected = numpy_dtype(tensor.dtype)
    if array.dtype != expected:
        raise TypeError(f"{said}: expected {expected}, found {array.dtype}")
    _refuse_shape(said, array, tensor)
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ValueError(f"{said}: expected an array in C order that can be written")
    # In C order, so an array is all of its memory; an empty one has none.
    return "cpu", array.__array_interface__["data"][0], array.nbytes


def _span_of_tensor(said: str, out: Out, tensor: TensorEntry) -> Span:
    from shardproof.checkpoint import _torch  # noqa: PLC0415 - there is a tensor

    try:
        _torch.refuse_unfillable(out)
        found, flat = _torch.from_torch(out)
    except TypeError as error:
        raise TypeError(f"{said}: {told(error)}") from None
    if found != tensor.dtype:
        raise TypeError(f"{said}: expected {tensor.dtype}, found {found}")
    _refuse_shape(said, out, tensor)
    if flat.untyped_storage().data_ptr() != out.untyped_storage().data_ptr():
        raise ValueError(f"{said}: expected a tensor in C order, with memory of its own")
    return str(flat.device), flat.data_ptr(), flat.nbytes


def _refuse_shape(said: str, out: Out, tensor: TensorEntry) -> None:
    if (found := tuple(out.shape)) != tensor.shape:
        raise ValueError(f"{said}: expected the shape {tensor.shape}, found {found}")


def numpy_dtype(name: str) -> "np.dtype[Any]":
    """Return the type in numpy, little endian; without ml_dtypes, unsigned integers for others."""
    if name in _format.NUMPY_TYPES:
        return np.dtype(name).newbyteorder("<")
    if importlib.util.find_spec("ml_dtypes"):
        import ml_dtypes  # noqa: PLC0415 - where it is installed

        if hasattr(ml_dtypes, name):
            dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return dtype
    return np.dtype(f"<u{_format.ITEM_SIZES[name]}")
