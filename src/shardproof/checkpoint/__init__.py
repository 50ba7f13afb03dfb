"""Checkpoints of many ranks: written in parallel, proven, loaded together or alone."""

from shardproof.checkpoint._bytes import MultiShardCheckpointFormat
from shardproof.checkpoint._convert import from_safetensors, to_safetensors
from shardproof.checkpoint._fsspec_storage import FsspecStorage
from shardproof.checkpoint._latest import latest_checkpoint
from shardproof.checkpoint._loader import MultiShardLoader
from shardproof.checkpoint._local_storage import LocalStorage
from shardproof.checkpoint._metadata import (
    CheckpointMetadata,
    ShardEntry,
    Sharding,
    TensorEntry,
)
from shardproof.checkpoint._promise import promise
from shardproof.checkpoint._prune import prune
from shardproof.checkpoint._saver import MultiShardSaver
from shardproof.checkpoint._storage import CheckpointStorage, StoredFile
from shardproof.checkpoint._unfinished import UnfinishedStep, unfinished_steps
from shardproof.checkpoint._verifier import ShardFileVerifier, VerificationResult

__all__ = [
    "CheckpointMetadata",
    "CheckpointStorage",
    "FsspecStorage",
    "LocalStorage",
    "MultiShardCheckpointFormat",
    "MultiShardLoader",
    "MultiShardSaver",
    "ShardEntry",
    "ShardFileVerifier",
    "Sharding",
    "StoredFile",
    "TensorEntry",
    "UnfinishedStep",
    "VerificationResult",
    "from_safetensors",
    "latest_checkpoint",
    "promise",
    "prune",
    "to_safetensors",
    "unfinished_steps",
]
