"""Checkpoints in one file a rank, whole and damaged: what only this format has."""

from shardproof.testing.samples.checkpoint._content import tensor_bytes
from shardproof.testing.samples.checkpoint._format import (
    FORMAT,
    CheckpointOptions,
    ExpectedProblem,
    checkpoint_dir_maker,
    expected_problems,
)
from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
    CheckpointTensor,
)

__all__ = [
    "FORMAT",
    "CheckpointMetadataState",
    "CheckpointOptions",
    "CheckpointShardState",
    "CheckpointTensor",
    "ExpectedProblem",
    "checkpoint_dir_maker",
    "expected_problems",
    "tensor_bytes",
]
