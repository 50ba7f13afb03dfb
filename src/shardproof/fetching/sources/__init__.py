"""Where shards come from."""

from shardproof.fetching.sources._callable import CallableSource
from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._open import open_source
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    Source,
)

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
    "open_source",
]
