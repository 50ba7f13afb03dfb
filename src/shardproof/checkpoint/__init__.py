"""Checkpoints of many ranks: written in parallel, proven, loaded together or alone."""

from shardproof.checkpoint._bytes import MultiShardCheckpointFormat
from shardproof.checkpoint._format import (
    CheckpointMetadata,
    ShardEntry,
    Sharding,
    TensorEntry,
)
from shardproof.checkpoint._from_safetensors import from_safetensors
from shardproof.checkpoint._prune import prune
from shardproof.checkpoint._to_safetensors import to_safetensors
from shardproof.checkpoint.read._directories import latest_checkpoint
from shardproof.checkpoint.read._loader import MultiShardLoader
from shardproof.checkpoint.read._verifier import ShardFileVerifier, VerificationResult
from shardproof.checkpoint.save._saver import MultiShardSaver
from shardproof.checkpoint.storage._fsspec_storage import FsspecStorage
from shardproof.checkpoint.storage._local_storage import LocalStorage
from shardproof.checkpoint.storage._location import UnfinishedStep, unfinished_steps
from shardproof.checkpoint.storage._storage import CheckpointStorage, StoredFile

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
    "prune",
    "to_safetensors",
    "unfinished_steps",
]
