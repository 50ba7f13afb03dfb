"""What fetches need and others don't is imported before a thread of ours begins to.

A fork while a thread imports leaves the child with a half of a module, or with a lock that nobody
gives back. So whoever starts threads imports first, where the caller waits: no import is under way
once the caller goes on, and may fork.
"""

import contextlib
import importlib

from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._source import Source

__all__ = ["import_for"]

_ALWAYS = ("filelock", "tenacity")
_WEB = ("anyio", "encodings.idna", "httpcore", "httpx")
_HUB = ("huggingface_hub.constants", "huggingface_hub.utils")
_FSSPEC = ("fsspec.archive", "fsspec.asyn", "fsspec.core", "fsspec.implementations.chained")


def import_for(source: Source) -> None:
    """Import what fetching from a source takes, but what its own transport imports as it goes."""
    for name in (*_ALWAYS, *_needed(source)):
        with contextlib.suppress(ImportError):  # who needs it says what is missing
            importlib.import_module(name)


def _needed(source: Source) -> tuple[str, ...]:
    if isinstance(source, HubSource):
        return _WEB + _HUB
    if isinstance(source, HttpSource):
        return _WEB
    return _FSSPEC if isinstance(source, FsspecSource) else ()
