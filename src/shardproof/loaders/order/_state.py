"""Where in an epoch a loader is, as data that outlives the process."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from shardproof._base.messages import quoted, told

__all__ = ["Part", "Place", "State", "differences", "read_state"]

_OWN = ("epoch", "delivered")
_MAX = 2**53

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part of an epoch that was delivered.

    Attributes:
        world_size: Among how many ranks.
        n_batches: How many batches to each.
    """

    world_size: Annotated[int, msgspec.Meta(ge=1, le=_MAX)]
    n_batches: Count


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """A place in an epoch, between two batches.

    Attributes:
        epoch: Number of the epoch.
        before: What of it was delivered with other world sizes.
        n_batches: How many batches each rank has had since then.
    """

    epoch: int
    before: tuple[Part, ...] = ()
    n_batches: int = 0


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    delivered: list[Part]
    version: Literal[1] = 1


def read_state(state: Mapping[str, Any]) -> State:
    """Return a state that was saved.

    Raises:
        ValueError: It is none; the text names the field.
    """
    try:
        return msgspec.convert(state, State)
    except msgspec.ValidationError as error:
        raise ValueError(f"expected what state_dict() returned: {told(error)}") from None


def differences(expected: State, found: State) -> list[str]:
    """Return in what a state is of another loader, each with both values."""
    pairs = (
        (name, getattr(expected, name), getattr(found, name))
        for name in State.__struct_fields__
        if name not in _OWN
    )
    return [
        f"{name}: expected {quoted(ours)}, found {quoted(theirs)}"
        for name, ours, theirs in pairs
        if ours != theirs
    ]
