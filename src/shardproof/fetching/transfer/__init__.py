"""One shard on its way: attempts, connections, bytes that are proven before they have a name."""

from shardproof.fetching.transfer._attempts import Goal, Limits
from shardproof.fetching.transfer._fetch import FetchResult, fetch, fetch_file, fetch_to
from shardproof.fetching.transfer._kept import key_in, own_part, parts_beneath, sweep_parts
from shardproof.fetching.transfer._requests import ask, listed, put, read_listed, read_range

__all__ = [
    "FetchResult",
    "Goal",
    "Limits",
    "ask",
    "fetch",
    "fetch_file",
    "fetch_to",
    "key_in",
    "listed",
    "own_part",
    "parts_beneath",
    "put",
    "read_listed",
    "read_range",
    "sweep_parts",
]
