"""Where in an epoch a loader is, as data that outlives the process."""

import dataclasses
from typing import Annotated, Any, Literal

import msgspec

MOST_COUNTED = 2**53

Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNTED)]


class DeliveredPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of an epoch that was delivered to some number of ranks.

    Attributes:
        world_size: How many ranks there were.
        n_batches: How many batches each of them had.
    """

    world_size: Annotated[int, msgspec.Meta(ge=1, le=MOST_COUNTED)]
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
    """What `state_dict` returns: of which loader it is, and where in which epoch that was.

    Attributes:
        directory: Hash of the directory's metadata.
        order: What the order depends on besides rows and batch size.
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
