"""Shards of tokens, proven by their sample ids, swapped while others train on them."""

from shardproof.datasets.tokens._manager import ShardedDatasetManager
from shardproof.datasets.tokens._tokens import SharedShardedDataset, sequence_id

__all__ = ["ShardedDatasetManager", "SharedShardedDataset", "sequence_id"]
