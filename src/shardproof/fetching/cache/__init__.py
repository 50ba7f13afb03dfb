"""Shards that are here: whole, proven, held by whoever reads them."""

from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._cleanup import cleanup_policy
from shardproof.fetching.cache._roots import cache_root

__all__ = ["Cache", "cache_root", "cleanup_policy"]
