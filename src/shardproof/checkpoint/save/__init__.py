"""Save tensors as a shard, and make a checkpoint of the shards of one attempt."""
