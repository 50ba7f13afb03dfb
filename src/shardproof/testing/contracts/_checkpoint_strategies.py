"""Checkpoints of every shape, and metadata of them that lie."""

from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

from shardproof.testing.contracts._hostile import hostile_json, hostile_names
from shardproof.testing.samples._keywords import integer
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples.checkpoint import CheckpointMetadataState, CheckpointShardState
from shardproof.testing.samples.checkpoint._content import checkpoint_document
from shardproof.testing.samples.checkpoint._lies import metadata_lies, misnamed
from shardproof.testing.samples.checkpoint._metadata import sealed
from shardproof.testing.samples.checkpoint._tensors import (
    ITEM_SIZES,
    as_tensor,
    can_be,
    rank_lied_about,
)

__all__ = ["checkpoint_tensors", "hostile_metadata", "make_possible", "options"]


def options(n_shards: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for what checkpoints are like; in most the metadata file is whole."""
    ok, every = st.just(CheckpointMetadataState.OK), st.sampled_from(CheckpointMetadataState)
    return st.fixed_dictionaries(
        {
            "tensors": st.one_of(st.none(), checkpoint_tensors(n_shards)),
            "metadata": st.sampled_from([ok, ok, ok, every, every]).flatmap(
                lambda strategy: strategy
            ),
            "step": st.sampled_from([1, 0, 10, 999, 2**31, 2**53 + 1]),
            "algorithm": st.sampled_from(["sha256", "sha256-tree"]),
            "seed": st.integers(0, 3),
        }
    )


def checkpoint_tensors(
    n_ranks: int, *, max_tensors: int = 4, dtypes: Collection[str] = tuple(ITEM_SIZES)
) -> st.SearchStrategy[Any]:
    """Return a strategy for the tensors of all ranks, as `Layout` takes them.

    They have up to four dimensions, or none, and may be without elements; a rank may be without
    tensors. No name is in two ranks.

    Args:
        n_ranks: How many ranks there are.
        max_tensors: How many tensors a rank has at most.
        dtypes: Those to choose from.

    Raises:
        TypeError: A number that is no integer.
        ValueError: A number below its least; something that is no dtype, or none.

    Example:
        >>> from hypothesis import find
        >>> find(checkpoint_tensors(1, dtypes=["int8"]), lambda ranks: len(ranks[0]) == 1)
        [[('layers.0.0', 'int8', ())]]
    """
    integer("n_ranks", n_ranks, at_least=1)
    integer("max_tensors", max_tensors, at_least=0)
    if unknown := {*dtypes} - ITEM_SIZES.keys() or not dtypes:
        raise ValueError(f"dtypes: expected some of {', '.join(ITEM_SIZES)}, found {unknown}")
    shape = st.lists(st.integers(0, 5), max_size=4).map(tuple)
    one = st.tuples(st.sampled_from([dtype for dtype in ITEM_SIZES if dtype in dtypes]), shape)
    ranks = st.lists(st.lists(one, max_size=max_tensors), min_size=n_ranks, max_size=n_ranks)
    return ranks.map(
        lambda drawn: [
            [(f"layers.{rank}.{place}", *each) for place, each in enumerate(some)]
            for rank, some in enumerate(drawn)
        ]
    )


def make_possible(states: list[str], said: dict[str, Any]) -> None:
    """Replace states that these tensors can't be in by whole ones."""
    given = said.get("tensors")
    if given is None:
        given = Layout(len(states), format="checkpoint").tensors
    made = [[as_tensor(each) for each in some] for some in given]
    for rank, (state, some) in enumerate(zip(states, made, strict=True)):
        if not can_be(state, some):
            states[rank] = CheckpointShardState.OK
    metadata = CheckpointMetadataState(said.get("metadata", "ok"))
    if rank_lied_about(metadata, made) is None:
        said["metadata"] = CheckpointMetadataState.OK


def hostile_metadata(layout: Layout, _index: int) -> st.SearchStrategy[bytes]:
    """Return a strategy for metadata files by which there is no checkpoint."""
    first = layout.tensors[0]
    if len(first) < 2 or not first[0].size:
        raise ValueError(
            "layout: expected two tensors in rank 0, the first with data, found others"
        )
    # Without numbers in texts: with another one there, those would be right.
    whole = Layout(3, format="checkpoint", prefix=layout.prefix)
    broken = hostile_json(checkpoint_document(whole) | {"timestamp": "now"})
    lies = [st.sampled_from([*metadata_lies(layout)]) for _ in range(3)]  # each counts: many
    names = hostile_names().map(lambda name: misnamed(layout, name))
    return st.one_of(broken, broken.map(_sealed_anyway), *lies, names)


def _sealed_anyway(text: bytes) -> bytes:
    """Put a right checksum at the end, whatever stands before it."""
    if text.endswith(b"}"):
        text = text[:-1] + b', "checksum": "'
    return sealed(text)
