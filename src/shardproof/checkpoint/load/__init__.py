"""Load shards: they become tensors again, and are proven as they are read."""
