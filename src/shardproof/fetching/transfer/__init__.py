"""One shard on its way: attempts, connections, bytes that are proven before they have a name."""

from shardproof.fetching.transfer._attempts import Goal, Limits
from shardproof.fetching.transfer._fetch import FetchResult, fetch, fetch_file
from shardproof.fetching.transfer._requests import ask, import_for, listed, read_range

__all__ = [
    "FetchResult",
    "Goal",
    "Limits",
    "ask",
    "fetch",
    "fetch_file",
    "import_for",
    "listed",
    "read_range",
]
