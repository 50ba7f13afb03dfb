"""Shards of tokens, proven by their sample ids, swapped while others train on them."""

from shardproof.datasets.tokens._manager import ShardedDatasetManager
from shardproof.datasets.tokens._token_checks import sequence_id
from shardproof.datasets.tokens._token_files import TokenFiles
from shardproof.datasets.tokens._tokens import SharedShardedDataset

__all__ = ["ShardedDatasetManager", "SharedShardedDataset", "TokenFiles", "sequence_id"]
