"""Checkpoints in one file a rank, whole and damaged, and what a right reader says of them.

This package imports nothing of shardproof outside the kit: it must not share the code that it helps
to judge.
"""

from shardproof.testing.samples.checkpoint._content import (
    checkpoint_shard_bytes,
    checkpoint_tensor_bytes,
)
from shardproof.testing.samples.checkpoint._directories import (
    MakeCheckpoint,
    checkpoint_dir,
    checkpoint_dir_maker,
)
from shardproof.testing.samples.checkpoint._layout import (
    CheckpointKeywords,
    CheckpointLayout,
    checkpoint_layout,
)
from shardproof.testing.samples.checkpoint._metadata import checkpoint_metadata_bytes
from shardproof.testing.samples.checkpoint._oracle import ExpectedProblem, expected_problems
from shardproof.testing.samples.checkpoint._reading import is_whole_checkpoint, read_checkpoint
from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
)
from shardproof.testing.samples.checkpoint._tensors import CheckpointTensor
from shardproof.testing.samples.checkpoint._writing import write_checkpoint

__all__ = [
    "CheckpointKeywords",
    "CheckpointLayout",
    "CheckpointMetadataState",
    "CheckpointShardState",
    "CheckpointTensor",
    "ExpectedProblem",
    "MakeCheckpoint",
    "checkpoint_dir",
    "checkpoint_dir_maker",
    "checkpoint_layout",
    "checkpoint_metadata_bytes",
    "checkpoint_shard_bytes",
    "checkpoint_tensor_bytes",
    "expected_problems",
    "is_whole_checkpoint",
    "read_checkpoint",
    "write_checkpoint",
]
