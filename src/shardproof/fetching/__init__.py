"""Fetch shards whole and proven, ahead of the reader, and forget them after it."""

from shardproof.fetching._adopt import adopt
from shardproof.fetching._prefetcher import ShardPrefetcher
from shardproof.fetching._stats import PrefetchEvent, PrefetchStats
from shardproof.fetching.sources import (
    CallableSource,
    Cut,
    Delivery,
    FsspecSource,
    HttpSource,
    HubSource,
    RemoteFile,
    Source,
    open_source,
    split_name,
)
from shardproof.fetching.transfer import Fetched, Limits, fetch_shard

__all__ = [
    "CallableSource",
    "Cut",
    "Delivery",
    "Fetched",
    "FsspecSource",
    "HttpSource",
    "HubSource",
    "Limits",
    "PrefetchEvent",
    "PrefetchStats",
    "RemoteFile",
    "ShardPrefetcher",
    "Source",
    "adopt",
    "fetch_shard",
    "open_source",
    "split_name",
]
