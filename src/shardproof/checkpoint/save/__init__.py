"""Tensors become a shard, and the shards of one attempt a checkpoint."""
