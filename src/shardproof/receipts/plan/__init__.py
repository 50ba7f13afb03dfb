"""Which input goes to which shard: decided once, pinned, and named by its hash."""
