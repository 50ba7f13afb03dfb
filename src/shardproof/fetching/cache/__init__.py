"""Shards that are here: proven, held by those who read them; for the rooms that build on it."""

from shardproof.fetching.cache._cache import Cache
from shardproof.fetching.cache._cached_fetcher import CachedFetcher
from shardproof.fetching.cache._cleanup import Cleanup, cleanup_policy
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.cache._places import STATE, key_of
from shardproof.fetching.cache._proofs import Mark, mark_of
from shardproof.fetching.cache._roots import cache_root
from shardproof.fetching.cache._stats import PrefetchEvent, PrefetchStats, PrefetchTally

__all__ = [
    "STATE",
    "Cache",
    "CachedFetcher",
    "Cleanup",
    "Lease",
    "Mark",
    "PrefetchEvent",
    "PrefetchStats",
    "PrefetchTally",
    "cache_root",
    "cleanup_policy",
    "key_of",
    "mark_of",
]
