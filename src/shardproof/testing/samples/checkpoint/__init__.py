"""Checkpoints in one file a rank, whole and damaged: what only this format has."""

from shardproof.testing.samples.checkpoint._content import shard_bytes, tensor_bytes
from shardproof.testing.samples.checkpoint._format import (
    FORMAT,
    CheckpointOptions,
    ExpectedProblem,
    MakeCheckpoint,
    checkpoint_dir_maker,
    expected_problems,
)
from shardproof.testing.samples.checkpoint._metadata import metadata_bytes
from shardproof.testing.samples.checkpoint._reading import is_whole_checkpoint, read_checkpoint
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
    "MakeCheckpoint",
    "checkpoint_dir_maker",
    "expected_problems",
    "is_whole_checkpoint",
    "metadata_bytes",
    "read_checkpoint",
    "shard_bytes",
    "tensor_bytes",
]
