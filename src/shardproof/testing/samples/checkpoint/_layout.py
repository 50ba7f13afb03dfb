"""One value that describes a checkpoint.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypedDict, Unpack

from shardproof.testing.samples._keywords import integer, member, refuse_unknown
from shardproof.testing.samples._named_states import indices_by_state, taken_states
from shardproof.testing.samples.checkpoint._needs import refuse_impossible
from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
)
from shardproof.testing.samples.checkpoint._tensors import CheckpointTensor, as_tensor

__all__ = [
    "CheckpointKeywords",
    "CheckpointLayout",
    "checkpoint_layout",
    "checkpoint_layout_of",
]

_DIGESTS = ("sha256", "sha256-tree")


class CheckpointKeywords(TypedDict, total=False):
    """The keywords of `checkpoint_layout`; for those who pass them on."""

    tensors: Iterable[Iterable[tuple[str, str, Iterable[int]]]] | None
    prefix: str
    metadata: str
    digest: str
    seed: int
    missing_ranks: Iterable[int] | None
    empty_ranks: Iterable[int] | None
    truncated_ranks: Iterable[int] | None
    extended_ranks: Iterable[int] | None
    flipped_ranks: Iterable[int] | None
    flipped_header_ranks: Iterable[int] | None
    flipped_padding_ranks: Iterable[int] | None
    zero_tail_ranks: Iterable[int] | None
    directory_ranks: Iterable[int] | None
    outside_ranks: Iterable[int] | None
    fifo_ranks: Iterable[int] | None
    unreadable_ranks: Iterable[int] | None
    swapped_ranks: Iterable[int] | None
    stale_ranks: Iterable[int] | None
    wrong_magic_ranks: Iterable[int] | None
    wrong_rank_ranks: Iterable[int] | None
    negative_checksum_ranks: Iterable[int] | None
    huge_checksum_ranks: Iterable[int] | None
    wrong_count_ranks: Iterable[int] | None
    negative_data_ranks: Iterable[int] | None
    huge_data_ranks: Iterable[int] | None
    unchecked_ranks: Iterable[int] | None


@dataclasses.dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class CheckpointLayout:
    """One checkpoint as a value; make it with `checkpoint_layout`, which is also its repr.

    Attributes:
        states: What became of the shard of each rank, in order.
        tensors: The tensors of each rank, in order.
        metadata: What became of the metadata file.
        prefix: The name with which all of its files begin.
        step: When in the training it was saved.
        digest: How its shards are proven: ``"sha256"`` or ``"sha256-tree"``.
        seed: Another seed makes other tensors.

    Raises:
        TypeError: A step or a seed that is no integer.
        ValueError: No ranks; a state that these tensors can't be in; a prefix that is no name.
    """

    states: tuple[CheckpointShardState, ...]
    tensors: tuple[tuple[CheckpointTensor, ...], ...]
    metadata: CheckpointMetadataState = CheckpointMetadataState.WHOLE
    prefix: str = "model"
    step: int = 1
    digest: str = "sha256"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("step", 0), ("seed", None)):
            number = integer(name, getattr(self, name), at_least=least)
            object.__setattr__(self, name, number)  # before anybody else has it
        if not self.states:
            raise ValueError("world_size: expected 1 or more, found 0")
        if not self.prefix or {"/", "\0"} & {*self.prefix}:
            raise ValueError(f"prefix: expected a name without a directory, found {self.prefix!r}")
        if self.digest not in _DIGESTS:
            found = f"{', '.join(_DIGESTS)}, found {self.digest!r}"
            raise ValueError(f"digest: expected one of {found}")
        refuse_impossible(self.states, self.metadata, self.tensors)

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._said())
        return f"checkpoint_layout({said})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the call for Hypothesis and IPython too, which would list a dataclass's fields."""
        printer.text(repr(self))

    def _said(self) -> Iterator[tuple[str, object]]:
        """The keywords that make this value, without those left at their default."""
        yield "world_size", self.world_size
        for name, ranks in indices_by_state(self.states, CheckpointShardState.WHOLE):
            yield f"{name}_ranks", ranks
        if self.tensors != _tensors(None, self.world_size):
            yield "tensors", [[tuple(tensor) for tensor in each] for each in self.tensors]
        if self.metadata is not CheckpointMetadataState.WHOLE:
            yield "metadata", self.metadata.value
        for name, default in (("prefix", "model"), ("step", 1), ("digest", "sha256"), ("seed", 0)):
            if getattr(self, name) != default:
                yield name, getattr(self, name)

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return len(self.states)

    @property
    def shard_names(self) -> tuple[str, ...]:
        """Each rank's file, in order."""
        return tuple(map(self.shard_name, range(self.world_size)))

    @property
    def note_names(self) -> tuple[str, ...]:
        """What each rank leaves for the one who writes the metadata, in order."""
        return tuple(f"{self.prefix}_shard_{rank}.tensors.json" for rank in range(self.world_size))

    @property
    def metadata_name(self) -> str:
        """The file that speaks for all."""
        return f"{self.prefix}.metadata.json"

    def shard_name(self, rank: int) -> str:
        """Return one rank's file; `shard_names` makes all of them, each time."""
        return f"{self.prefix}_shard_{rank}.shard"

    def ranks(self, state: CheckpointShardState) -> tuple[int, ...]:
        """Return whose shards are in this state."""
        return tuple(rank for rank, found in enumerate(self.states) if found is state)

    def is_unreadable(self) -> bool:
        """Return whether there is a file that nobody may read."""
        in_shards = CheckpointShardState.UNREADABLE in self.states
        return in_shards or self.metadata is CheckpointMetadataState.UNREADABLE


def checkpoint_layout(
    world_size: int = 3, step: int = 1, **keywords: Unpack[CheckpointKeywords]
) -> CheckpointLayout:
    """Return the value that describes a checkpoint; nothing is written.

    Each `CheckpointShardState` but ``whole`` is a keyword with ``_ranks`` behind it, and takes the
    ranks whose shards are in that state; all others are whole.

    Args:
        world_size: How many ranks there are.
        step: When in the training it was saved.
        **keywords:
            ``missing_ranks``, ``truncated_ranks`` and so on: ranks.
            ``metadata``: What became of the metadata file, a `CheckpointMetadataState`.
            ``tensors``: For each rank the tensors that it has, each as (name, dtype, shape). By
            default three small ones.
            ``prefix``: The name with which all files begin (``"model"``).
            ``digest``: ``"sha256"`` or ``"sha256-tree"``, for the shards.
            ``seed``: Another seed makes other tensors (0).

    Raises:
        TypeError: Another keyword, or a number or a rank that is no integer.
        ValueError: No ranks; a rank out of range or named twice; tensors for more ranks or fewer;
            tensors that the format can't say, or that can't be in the state.

    Example:
        >>> checkpoint_layout(4, missing_ranks=[1], metadata="truncated")
        checkpoint_layout(world_size=4, missing_ranks=[1], metadata='truncated')
    """
    said = {"world_size": world_size, "step": step, **keywords}
    return checkpoint_layout_of("checkpoint_layout", said)


def checkpoint_layout_of(
    function: str, keywords: Mapping[str, Any], also: Iterable[str] = ()
) -> CheckpointLayout:
    """Return what `checkpoint_layout` returns, for a function that has more arguments."""
    known = ["world_size", "step", *CheckpointKeywords.__annotations__, *also]
    refuse_unknown(function, keywords.keys() - {*known}, known)
    said = dict(keywords)
    world_size = integer("world_size", said.pop("world_size"), at_least=1)
    said["metadata"] = member("metadata", said.get("metadata", "whole"), CheckpointMetadataState)
    said["tensors"] = _tensors(said.get("tensors"), world_size)
    states = taken_states(said, world_size, _STATES, CheckpointShardState.WHOLE)
    return CheckpointLayout(states=states, **said)


_STATES = {
    f"{state}_ranks": state
    for state in CheckpointShardState
    if state is not CheckpointShardState.WHOLE
}


def _tensors(given: Any, world_size: int) -> tuple[tuple[CheckpointTensor, ...], ...]:
    if given is None:
        return tuple(_default_tensors(rank) for rank in range(world_size))
    return tuple(tuple(map(as_tensor, each)) for each in given)


def _default_tensors(rank: int) -> tuple[CheckpointTensor, ...]:
    return (
        CheckpointTensor(f"layers.{rank}.weight", "float32", (4, 3)),
        CheckpointTensor(f"layers.{rank}.bias", "bfloat16", (5,)),
        CheckpointTensor(f"layers.{rank}.n_updates", "int64", ()),
    )
