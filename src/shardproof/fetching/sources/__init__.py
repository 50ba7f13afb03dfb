"""Where shards come from."""

from shardproof.fetching.sources._callable import CallableSource
from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._open import open_source, split_name
from shardproof.fetching.sources._source import Cut, Delivery, RemoteFile, Source

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
