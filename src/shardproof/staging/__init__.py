"""A shards directory on the node's own disk: copied once, proven, shared, used again."""

from shardproof.staging._stage import stage

__all__ = ["stage"]
