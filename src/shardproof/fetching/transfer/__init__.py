"""One shard on its way: attempts, connections, bytes that are proven before they have a name."""

from shardproof.fetching.transfer._fetch import Fetched, fetch_shard
from shardproof.fetching.transfer._limits import Limits

__all__ = ["Fetched", "Limits", "fetch_shard"]
