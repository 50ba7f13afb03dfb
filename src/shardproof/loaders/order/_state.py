"""Where in an epoch a loader is, as data that outlives the process."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from shardproof._base.messages import quoted, told

__all__ = ["DeliveredPart", "EpochPosition", "LoaderState", "differences", "read_state"]

_OWN = ("epoch", "delivered")
_MAX = 2**53

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]


class DeliveredPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an epoch that was delivered to some number of ranks.

    Attributes:
        world_size: How many ranks there were.
        n_batches: How many batches each of them had.
    """

    world_size: Annotated[int, msgspec.Meta(ge=1, le=_MAX)]
    n_batches: Count


@dataclasses.dataclass(frozen=True, slots=True)
class EpochPosition:
    """A position in an epoch, between two batches.

    Attributes:
        epoch: Number of the epoch.
        before: What of it was delivered with other world sizes.
        n_batches: How many batches each rank has had since then.
    """

    epoch: int
    before: tuple[DeliveredPart, ...] = ()
    n_batches: int = 0


class LoaderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `state_dict` returns.

    Attributes:
        loader: Name of the loader's class.
        directory: Hash of the directory's metadata.
        layer: As at construction.
        tokens: As at construction.
        batch_size: As at construction.
        drop_last: As at construction.
        even_batches: As at construction.
        order: What the order depends on besides.
        epoch: Number of the epoch.
        delivered: What all ranks have, one part for each world size that was in use.
        version: Of this layout.
    """

    loader: str
    directory: str
    layer: int | Literal["all"]
    tokens: str
    batch_size: int
    drop_last: bool
    even_batches: bool
    order: dict[str, Any]
    epoch: Count
    delivered: list[DeliveredPart]
    version: Literal[1] = 1


def read_state(state: Mapping[str, Any]) -> LoaderState:
    """Return a state that was saved.

    Raises:
        ValueError: It is none; the text names the field.
    """
    try:
        return msgspec.convert(state, LoaderState)
    except msgspec.ValidationError as error:
        raise ValueError(f"expected what state_dict() returned: {told(error)}") from None


def differences(expected: LoaderState, found: LoaderState) -> list[str]:
    """Return what shows that a state is of another loader, each with both values."""
    pairs = (
        (name, getattr(expected, name), getattr(found, name))
        for name in LoaderState.__struct_fields__
        if name not in _OWN
    )
    return [
        f"{name}: expected {quoted(ours)}, found {quoted(theirs)}"
        for name, ours, theirs in pairs
        if ours != theirs
    ]
