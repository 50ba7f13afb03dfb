"""What a right reader must say of a checkpoint, known from the layout alone.

This module imports nothing of shardproof: an oracle must not share the code that it judges.
"""

from collections.abc import Mapping
from typing import NamedTuple

from shardproof.testing.samples.checkpoint._content import checkpoint_shard_bytes
from shardproof.testing.samples.checkpoint._layout import CheckpointLayout
from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
)

__all__ = ["ExpectedProblem", "expected_problems"]

_LEVELS = ("present", "complete", "valid")


class ExpectedProblem(NamedTuple):
    """Why a checkpoint is not whole."""

    rank: int | None
    """Whose shard it is about; None for the metadata file."""
    kind: str
    """Of a shard a value of `shardproof.FindingKind`, or ``unproven``; of the metadata file
    ``missing``, ``not-regular``, ``unreadable`` or ``refused``."""


def expected_problems(value: CheckpointLayout, level: str = "valid") -> tuple[ExpectedProblem, ...]:
    """Return every problem of a checkpoint; none, if it is whole as far as the level looks.

    Where the metadata file has a problem there is no other one: nothing else is believed then.
    Unreadable files are expected to be unreadable: for root that takes `without_root_override`.

    Args:
        value: What was written.
        level: ``"present"``: each shard that the metadata name is there, a regular file inside the
            directory, not empty, opens; ``"complete"``: and has the size and the header that the
            metadata imply; ``"valid"``: and its data have the checksum, so that a shard without one
            is not proven.

    Raises:
        ValueError: Another level.

    Example:
        >>> value = checkpoint_layout(4, missing_ranks=[1], flipped_ranks=[2])
        >>> for problem in expected_problems(value):
        ...     print(problem.rank, problem.kind)
        1 missing
        2 digest
        >>> expected_problems(checkpoint_layout(flipped_ranks=[2]), "complete")
        ()
    """
    if level not in _LEVELS:
        raise ValueError(f"level: expected one of {', '.join(_LEVELS)}, found {level!r}")
    if value.metadata is not CheckpointMetadataState.WHOLE:
        return (ExpectedProblem(None, _METADATA.get(value.metadata, "refused")),)
    ring = value.ranks(CheckpointShardState.SWAPPED)
    following = dict(zip(ring, ring[1:] + ring[:1], strict=True))
    kinds = [_kind(value, rank, level, following) for rank in range(value.world_size)]
    return tuple(ExpectedProblem(rank, kind) for rank, kind in enumerate(kinds) if kind)


_METADATA = {
    CheckpointMetadataState.MISSING: "missing",
    CheckpointMetadataState.UNFINISHED: "missing",
    CheckpointMetadataState.PRUNED: "missing",
    CheckpointMetadataState.UNREADABLE: "unreadable",
    CheckpointMetadataState.DIRECTORY: "not-regular",
}

_PRESENT = {
    CheckpointShardState.MISSING: "missing",
    CheckpointShardState.EMPTY: "empty",
    CheckpointShardState.UNREADABLE: "unreadable",
    CheckpointShardState.DIRECTORY: "not-regular",
    CheckpointShardState.OUTSIDE: "not-regular",
    CheckpointShardState.FIFO: "not-regular",
}
_COMPLETE = _PRESENT | {
    CheckpointShardState.TRUNCATED: "size",
    CheckpointShardState.EXTENDED: "size",
    CheckpointShardState.FLIPPED_HEADER: "structure",
    CheckpointShardState.SWAPPED: "structure",
    CheckpointShardState.STALE: "structure",
    CheckpointShardState.WRONG_MAGIC: "structure",
    CheckpointShardState.WRONG_RANK: "structure",
    CheckpointShardState.NEGATIVE_CHECKSUM: "structure",
    CheckpointShardState.HUGE_CHECKSUM: "structure",
    CheckpointShardState.WRONG_COUNT: "structure",
    CheckpointShardState.NEGATIVE_DATA: "structure",
    CheckpointShardState.HUGE_DATA: "structure",
}
_VALID = _COMPLETE | {
    CheckpointShardState.FLIPPED: "digest",
    CheckpointShardState.FLIPPED_PADDING: "digest",
    CheckpointShardState.ZERO_TAIL: "digest",
    CheckpointShardState.UNCHECKED: "unproven",
}
_KINDS = dict(zip(_LEVELS, (_PRESENT, _COMPLETE, _VALID), strict=True))


def _kind(
    value: CheckpointLayout, rank: int, level: str, following: Mapping[int, int]
) -> str | None:
    kind = _KINDS[level].get(value.states[rank])
    if kind == "structure" and value.states[rank] is CheckpointShardState.SWAPPED:
        sizes = {len(checkpoint_shard_bytes(value, each)) for each in (rank, following[rank])}
        return "structure" if len(sizes) == 1 else "size"
    return kind
