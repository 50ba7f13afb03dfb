"""Where shards come from."""

from shardproof.prefetch.sources._callable import CallableSource
from shardproof.prefetch.sources._fsspec import FsspecSource
from shardproof.prefetch.sources._http import HttpSource
from shardproof.prefetch.sources._hub import HubSource
from shardproof.prefetch.sources._open import open_source, split_name
from shardproof.prefetch.sources._source import Cut, Delivery, RemoteFile, Source

__all__ = [
    "CallableSource",
    "Cut",
    "Delivery",
    "FsspecSource",
    "HttpSource",
    "HubSource",
    "RemoteFile",
    "Source",
    "open_source",
    "split_name",
]
