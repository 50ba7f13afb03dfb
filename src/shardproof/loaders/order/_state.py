"""Where in an epoch a loader is, as data that outlives the process."""

import dataclasses
from typing import Annotated, Any, Literal

import msgspec

MOST_COUNTED = 2**53

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]


class DeliveredPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an epoch: how many batches each of so many ranks had."""

    world_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_COUNTED)]
    n_batches: Count


@dataclasses.dataclass(frozen=True, slots=True)
class EpochPosition:
    """A position in an epoch: after so many batches, and what other world sizes had before."""

    epoch: int
    before: tuple[DeliveredPart, ...] = ()
    n_batches: int = 0


class LoaderState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `state_dict` returns: of which loader it is, and where in which epoch that was."""

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
