"""Shards of tokens, proven by their sample ids, swapped while others train on them."""

from shardproof.prefetch.tokens._manager import ShardedDatasetManager
from shardproof.prefetch.tokens._tokens import SharedShardedDataset, sequence_id

__all__ = ["ShardedDatasetManager", "SharedShardedDataset", "sequence_id"]
