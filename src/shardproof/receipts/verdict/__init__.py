"""Whether a shard of a plan is done, and why not."""
