"""One shard on its way: attempts, connections, bytes that are proven before they have a name."""

from shardproof.fetching.transfer._asking import ask, listed
from shardproof.fetching.transfer._attempts import Goal
from shardproof.fetching.transfer._fetch import fetch, fetch_file
from shardproof.fetching.transfer._fetch_to import FetchResult
from shardproof.fetching.transfer._limits import Limits
from shardproof.fetching.transfer._ranges import read_range

__all__ = [
    "FetchResult",
    "Goal",
    "Limits",
    "ask",
    "fetch",
    "fetch_file",
    "listed",
    "read_range",
]
