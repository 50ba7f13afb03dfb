"""Shards become tensors again, proven as they are read."""
