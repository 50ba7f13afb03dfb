"""Hypothesis strategies for checkpoints, and for metadata that lie."""

from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

from shardproof.testing.contracts._choice import chosen
from shardproof.testing.contracts._hostile import hostile_json, hostile_names
from shardproof.testing.samples.checkpoint import (
    CheckpointLayout,
    CheckpointMetadataState,
    CheckpointShardState,
    CheckpointTensor,
    checkpoint_layout,
)
from shardproof.testing.samples.checkpoint._content import checkpoint_document
from shardproof.testing.samples.checkpoint._lies import metadata_lies, misnamed
from shardproof.testing.samples.checkpoint._metadata import sealed
from shardproof.testing.samples.checkpoint._needs import can_be, rank_lied_about
from shardproof.testing.samples.checkpoint._tensors import ITEM_SIZES

__all__ = [
    "checkpoint_layouts",
    "checkpoint_metadata_states",
    "checkpoint_shard_states",
    "hostile_checkpoint_metadata",
]

_Tensors = tuple[tuple[CheckpointTensor, ...], ...]


def checkpoint_shard_states(
    states: Collection[str] = tuple(CheckpointShardState),
) -> st.SearchStrategy[CheckpointShardState]:
    """Return a strategy for what became of one shard; shrinks to `CheckpointShardState.WHOLE`.

    Args:
        states: Those to choose from.

    Raises:
        ValueError: None, or something that is no state.

    Example:
        >>> from hypothesis import find
        >>> find(checkpoint_shard_states(["stale", "whole"]), lambda state: True)
        <CheckpointShardState.WHOLE: 'whole'>
    """
    return st.sampled_from(chosen("states", states, CheckpointShardState))


def checkpoint_metadata_states(
    states: Collection[str] = tuple(CheckpointMetadataState),
) -> st.SearchStrategy[CheckpointMetadataState]:
    """Return a strategy for what became of the metadata file; shrinks to ``whole``.

    Args:
        states: Those to choose from.

    Raises:
        ValueError: None, or something that is no state.

    Example:
        >>> from hypothesis import find
        >>> find(checkpoint_metadata_states(["holes", "pruned"]), lambda state: True)
        <CheckpointMetadataState.PRUNED: 'pruned'>
    """
    return st.sampled_from(chosen("states", states, CheckpointMetadataState))


def checkpoint_layouts(
    *,
    max_ranks: int = 4,
    max_tensors: int = 4,
    dtypes: Collection[str] = tuple(ITEM_SIZES),
    states: Collection[str] = tuple(CheckpointShardState),
    metadata: Collection[str] = tuple(CheckpointMetadataState),
) -> st.SearchStrategy[CheckpointLayout]:
    """Return a strategy for checkpoints, from whole ones to ruins.

    About a third of them are whole, and in most of the others the metadata file is: whoever
    refuses everything is as wrong as whoever believes it. Tensors have up to four dimensions, or
    none, and may be without elements; a rank may be without tensors. No name is in two ranks.

    It shrinks to one rank, to the default tensors, and to whole files.

    Args:
        max_ranks: Largest world size.
        max_tensors: How many tensors a rank has at most.
        dtypes: Those to choose from.
        states: What may become of a shard; `CheckpointShardState.WHOLE` is always among them.
        metadata: What may become of the metadata file; ``whole`` is always among them.

    Raises:
        TypeError: A number that is no integer.
        ValueError: A number out of range; something that is no state or no dtype.

    Example:
        >>> from hypothesis import find
        >>> find(checkpoint_layouts(), lambda value: "truncated" in value.states)
        checkpoint_layout(world_size=1, truncated_ranks=[0])
    """
    _refuse_number("max_ranks", max_ranks, 1)
    _refuse_number("max_tensors", max_tensors, 0)
    if unknown := {*dtypes} - ITEM_SIZES.keys() or not dtypes:
        raise ValueError(f"dtypes: expected some of {', '.join(ITEM_SIZES)}, found {unknown}")
    whole = st.just(CheckpointMetadataState.WHOLE)
    one = checkpoint_shard_states([CheckpointShardState.WHOLE, *states])
    ruined = checkpoint_metadata_states([CheckpointMetadataState.WHOLE, *metadata])
    kinds = [(st.just(CheckpointShardState.WHOLE), whole), (one, whole), (one, ruined)]
    shapes = _tensors(max_tensors, [dtype for dtype in ITEM_SIZES if dtype in dtypes])
    return _layouts(st.integers(1, max_ranks), st.sampled_from(kinds), shapes)


def _refuse_number(name: str, number: object, least: int) -> None:
    if type(number) is not int:
        raise TypeError(f"{name}: expected int, found {number!r}")
    if number < least:
        raise ValueError(f"{name}: expected {least} or more, found {number}")


def _tensors(max_tensors: int, dtypes: list[str]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Of one rank, without names."""
    shape = st.lists(st.integers(0, 5), max_size=4).map(tuple)
    return st.lists(st.tuples(st.sampled_from(dtypes), shape), max_size=max_tensors)


@st.composite  # not builds(), which would print its own call instead of the layout's
def _layouts(
    draw: st.DrawFn,
    sizes: st.SearchStrategy[int],
    kinds: st.SearchStrategy[tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]],
    shapes: st.SearchStrategy[list[tuple[str, Any]]],
) -> CheckpointLayout:
    world_size, (one, ruined) = draw(sizes), draw(kinds)
    tensors = checkpoint_layout(world_size).tensors
    if draw(st.booleans()):
        tensors = tuple(_named(rank, draw(shapes)) for rank in range(world_size))
    metadata = draw(ruined)
    if rank_lied_about(metadata, tensors) is None:
        metadata = CheckpointMetadataState.WHOLE
    some = st.sampled_from([CheckpointShardState.WHOLE, draw(one), draw(one)])  # two may be alike
    return CheckpointLayout(
        states=_possible([draw(some) for _ in range(world_size)], tensors),
        tensors=tensors,
        metadata=metadata,
        step=draw(st.sampled_from([1, 0, 10, 999, 2**31, 2**53 + 1])),
        digest=draw(st.sampled_from(["sha256", "sha256-tree"])),
        seed=draw(st.integers(0, 3)),
    )


def _named(rank: int, shapes: list[tuple[str, Any]]) -> tuple[CheckpointTensor, ...]:
    return tuple(
        CheckpointTensor(f"layers.{rank}.{place}", *each) for place, each in enumerate(shapes)
    )


def _possible(
    states: list[CheckpointShardState], tensors: _Tensors
) -> tuple[CheckpointShardState, ...]:
    if states.count(CheckpointShardState.SWAPPED) == 1:  # with whom?
        states[states.index(CheckpointShardState.SWAPPED)] = CheckpointShardState.WHOLE
    return tuple(
        state if can_be(state, each) else CheckpointShardState.WHOLE
        for state, each in zip(states, tensors, strict=True)
    )


def hostile_checkpoint_metadata(
    value: CheckpointLayout | None = None,
) -> st.SearchStrategy[bytes]:
    """Return a strategy for metadata files by which there is no checkpoint, whatever the shards.

    They are no JSON, or not quite (`hostile_json`); or one field has the wrong type or a value that
    the format's laws forbid; or a shard has a name that no path may be made of, some of which lead
    to the very file that was meant. Most have their own right checksum: only the law that is broken
    can tell. A right reader refuses each, and raises nothing else.

    Args:
        value: The checkpoint that they lie about; by default ``checkpoint_layout()``.

    Raises:
        ValueError: Its first rank has no two tensors, the first of them with data.

    Example:
        >>> from hypothesis import find
        >>> find(hostile_checkpoint_metadata(), lambda text: len(text) < 9)
        b''
    """
    value = checkpoint_layout() if value is None else value
    first = value.tensors[0]
    if len(first) < 2 or not first[0].size:
        raise ValueError("value: expected two tensors in rank 0, the first with data, found others")
    # Without numbers in texts: with another one there, those would be right.
    document = checkpoint_document(checkpoint_layout(prefix=value.prefix)) | {"timestamp": "now"}
    broken = hostile_json(document)
    lies = [st.sampled_from([*metadata_lies(value)]) for _ in range(3)]  # each counts: many
    names = hostile_names().map(lambda name: misnamed(value, name))
    return st.one_of(broken, broken.map(_sealed_anyway), *lies, names)


def _sealed_anyway(text: bytes) -> bytes:
    """With a right checksum at the end, whatever stands before it."""
    if text.endswith(b"}"):
        text = text[:-1] + b', "checksum": "'
    return sealed(text)
