"""Lay out files of safetensors: their headers, and where in a file each tensor goes."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from shardproof._base.messages import quoted
from shardproof.checkpoint.format._dtypes import ITEM_SIZES
from shardproof.checkpoint.safetensors._headers import (
    LENGTH,
    MAX_HEADER_BYTES,
    METADATA,
    SET,
    TYPES,
    UNCONVERTIBLE,
    HeaderEntry,
    StoredTensor,
    refuse,
)
from shardproof.errors import CheckpointError

__all__ = ["Described", "lay_out", "refuse_unconvertible"]

_THEIRS = {ours: theirs for theirs, ours in TYPES.items()}


class Described(Protocol):
    """A tensor that is to be stored, by the names of docs/checkpoint-format.md."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def size(self) -> int: ...


def refuse_unconvertible(tensors: Iterable[Described], path: str) -> None:
    """Raise a `CheckpointError` that lists all tensors whose type or name has no counterpart."""
    refuse(path, UNCONVERTIBLE.format(", ".join(_THEIRS)), _without_their_own(tensors))


def lay_out(
    tensors: Sequence[Described], path: str, *, of_set: str
) -> tuple[bytes, tuple[StoredTensor, ...]]:
    """Return the first bytes of a file, and where in it each tensor goes.

    As in files of safetensors' own, the types with the largest elements come first: so each tensor
    begins at a multiple of its elements' size, without which some readers can't take it.

    Args:
        tensors: What it is to hold, of which `refuse_unconvertible` has nothing to say.
        path: Of the file, for refusals.
        of_set: The set that it is one of.

    Raises:
        CheckpointError: The header is larger than any reader takes.
    """
    ordered = sorted(tensors, key=lambda tensor: (-ITEM_SIZES[tensor.dtype], tensor.name))
    # Some loaders take only files that say for whom they are, and every one takes this.
    fields: dict[str, object] = {METADATA: {"format": "pt", SET: of_set}}
    at = 0
    for tensor in ordered:
        end = at + tensor.size
        fields[tensor.name] = HeaderEntry(_THEIRS[tensor.dtype], tensor.shape, (at, end))
        at = end
    text = msgspec.json.encode(fields)
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        problem = f"expected a header of at most {MAX_HEADER_BYTES} bytes, found {len(text)}"
        raise CheckpointError(f"{problem}: it has too many tensors for one file", path=path)
    header = LENGTH.pack(len(text)) + text
    return header, tuple(_placed(ordered, len(header)))


def _without_their_own(tensors: Iterable[Described]) -> Iterator[str]:
    for tensor in tensors:
        if tensor.dtype not in _THEIRS:
            yield f"{quoted(tensor.name)}: found the type {tensor.dtype}"
        if tensor.name == METADATA:
            yield f"{quoted(tensor.name)}: expected another name, which that format leaves free"


def _placed(tensors: Sequence[Described], at: int) -> Iterator[StoredTensor]:
    for tensor in tensors:
        yield StoredTensor(tensor.name, tensor.dtype, tensor.shape, at, tensor.size)
        at += tensor.size
