"""Which states a checkpoint can be in, with the tensors that it has.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import collections
from collections.abc import Sequence

from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
)
from shardproof.testing.samples.checkpoint._tensors import CheckpointTensor

__all__ = ["can_be", "rank_lied_about", "refuse_impossible"]

_Tensors = Sequence[CheckpointTensor]

_SHARD_NEEDS = {
    CheckpointShardState.FLIPPED_PADDING: (1, 0),
    CheckpointShardState.FLIPPED: (1, 1),
    CheckpointShardState.ZERO_TAIL: (1, 1),
    CheckpointShardState.STALE: (1, 1),
}
"""How many tensors a rank must have, and how many with one element or more; by default none."""

# Not in one table with those: a state of shards is equal to that of metadata of the same name.
_METADATA_NEEDS = {
    CheckpointMetadataState.HOLES: (1, 0),
    CheckpointMetadataState.UNKNOWN_DTYPE: (1, 0),
    CheckpointMetadataState.OVERFLOWING: (1, 1),
    CheckpointMetadataState.OVERLAPPING: (2, 2),
}


def can_be(state: CheckpointShardState, tensors: _Tensors) -> bool:
    """Return whether the shard of these tensors can be in a state."""
    if state is CheckpointShardState.STALE and not any(map(_varies, tensors)):
        return False
    return _has(tensors, _SHARD_NEEDS.get(state, (0, 0)))


def _varies(tensor: CheckpointTensor) -> bool:
    """Whether its bytes are other ones at other steps: the last is odd, so one bool is the same."""
    return tensor.size > (tensor.dtype == "bool")


def rank_lied_about(state: CheckpointMetadataState, tensors: Sequence[_Tensors]) -> int | None:
    """Return the first rank whose tensors such metadata can lie about; None if there is none."""
    return next((rank for rank, each in enumerate(tensors) if _can_lie(state, each)), None)


def _can_lie(state: CheckpointMetadataState, tensors: _Tensors) -> bool:
    if state is CheckpointMetadataState.OVERLAPPING:
        # All that is seen may be the last tensor, and it must be another one in a stale shard.
        *_, last = [True, *(_varies(tensor) for tensor in tensors if tensor.size)]
        if not last:
            return False
    return _has(tensors, _METADATA_NEEDS.get(state, (0, 0)))


def _has(tensors: _Tensors, needs: tuple[int, int]) -> bool:
    n_with_data = sum(tensor.size > 0 for tensor in tensors)
    return len(tensors) >= needs[0] and n_with_data >= needs[1]


def refuse_impossible(
    states: Sequence[CheckpointShardState],
    metadata: CheckpointMetadataState,
    tensors: Sequence[_Tensors],
) -> None:
    """Raise a ValueError where a state would leave everything as it was."""
    if len(tensors) != len(states):
        raise ValueError(f"tensors: expected those of {len(states)} ranks, found {len(tensors)}")
    for rank, (state, each) in enumerate(zip(states, tensors, strict=True)):
        _refuse_twins(rank, each)
        if not can_be(state, each):
            where = f"data in the shard of rank {rank} that it can change"
            raise ValueError(f"{state}: expected {where}, found none")
    if rank_lied_about(metadata, tensors) is None:
        raise ValueError(f"metadata: too few tensors with data for {metadata} to be a lie")
    if states.count(CheckpointShardState.SWAPPED) == 1:
        raise ValueError("swapped: expected none, or two or more, found one")


def _refuse_twins(rank: int, tensors: _Tensors) -> None:
    counts = collections.Counter(tensor.name for tensor in tensors)
    if twins := sorted(name for name, count in counts.items() if count > 1):
        raise ValueError(f"tensors: expected one {twins[0]!r} in rank {rank}, found more")
