"""Which worker is at which shard, without a lock."""
