"""A repository of the loopback hub as a source."""

import contextlib
from collections.abc import Iterator, Mapping

from shardproof.fetching import HubSource
from shardproof.testing.faults import Hub


@contextlib.contextmanager
def repository(hub: Hub, files: Mapping[str, bytes]) -> Iterator[HubSource]:
    """Yield the source of a repository that has these files."""
    for name, data in files.items():
        hub.put(name, data, repo="org/name")
    source = HubSource("org/name", endpoint=hub.url)
    try:
        yield source
    finally:
        source.close()
