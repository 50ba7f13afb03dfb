"""Where shards come from."""

from shardproof.fetching.sources._callable import CallableSource
from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._open import is_repository, open_source, split_name
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    Source,
)
from shardproof.fetching.sources._urls import bare, is_on_disk

__all__ = [
    "CallableSource",
    "Cancellation",
    "FsspecSource",
    "HttpSource",
    "HubSource",
    "ReadRequest",
    "RemoteFile",
    "Response",
    "Source",
    "bare",
    "is_on_disk",
    "is_repository",
    "open_source",
    "split_name",
]
