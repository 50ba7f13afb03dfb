"""Fetch shards whole and proven, ahead of the reader, and forget them after it."""

from shardproof.fetching._adopt import adopt
from shardproof.fetching._prefetcher import ShardPrefetcher
from shardproof.fetching.cache._stats import PrefetchEvent, PrefetchStats
from shardproof.fetching.sources import (
    CallableSource,
    Cancellation,
    FsspecSource,
    HttpSource,
    HubSource,
    ReadRequest,
    RemoteFile,
    Response,
    Source,
    open_source,
)
from shardproof.fetching.transfer import FetchResult, Limits, fetch, fetch_file

__all__ = [
    "CallableSource",
    "Cancellation",
    "FetchResult",
    "FsspecSource",
    "HttpSource",
    "HubSource",
    "Limits",
    "PrefetchEvent",
    "PrefetchStats",
    "ReadRequest",
    "RemoteFile",
    "Response",
    "ShardPrefetcher",
    "Source",
    "adopt",
    "fetch",
    "fetch_file",
    "open_source",
]
