"""Shards that are here: proven, held by their readers; for the rooms that build on it.

What is imported but not listed is for those rooms only.
"""

from shardproof.fetching.cache._cache import Cache as Cache
from shardproof.fetching.cache._cached_fetcher import CachedFetcher
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.cache._places import STATE, key_of
from shardproof.fetching.cache._settings import Cleanup
from shardproof.fetching.cache._settings import CleanupPolicy as CleanupPolicy
from shardproof.fetching.cache._settings import cleanup_policy as cleanup_policy
from shardproof.fetching.cache._stats import PrefetchEvent, PrefetchStats, PrefetchTally

__all__ = [
    "STATE",
    "CachedFetcher",
    "Cleanup",
    "Lease",
    "PrefetchEvent",
    "PrefetchStats",
    "PrefetchTally",
    "key_of",
]
