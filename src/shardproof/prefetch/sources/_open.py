"""An address becomes a source."""

import re
from urllib.parse import unquote, urlsplit, urlunsplit

from shardproof._arguments import checked
from shardproof._messages import quoted, shown
from shardproof.prefetch.sources._fsspec import FsspecSource
from shardproof.prefetch.sources._http import HttpSource
from shardproof.prefetch.sources._hub import HubSource
from shardproof.prefetch.sources._source import Source
from shardproof.prefetch.sources._urls import bare

__all__ = ["open_source", "split_name"]

_HUB = re.compile(
    r"hf://(?P<kind>datasets/|models/)?(?P<repo>(?!datasets/|models/|spaces/)[^/@]+/[^/@]+)(@(?P<revision>[^/]+))?(/(?P<folder>.*))?"
)


@checked
def open_source(url: str) -> Source:
    """Return the source that an address names.

    Args:
        url: ``hf://datasets/org/name[@revision][/folder]``, or ``hf://org/name`` for a model;
            ``https://...`` or ``http://...``; what else fsspec opens, such as ``s3://bucket/folder``,
            ``gs://``, ``file:///folder``, ``memory://``. A slash within a revision is ``%2F``.

    Raises:
        ValueError: None of these.
        ImportError: The package that talks to it is not installed; its name is told.

    Example:
        >>> open_source("https://example.org/shards").url
        'https://example.org/shards'
    """
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme == "hf":
        return _hub(url)
    if scheme in {"http", "https"}:
        return HttpSource(url)
    if scheme:
        return FsspecSource(url)
    raise ValueError(f"url: expected hf://, https://, s3://, file:///..., found {quoted(url)}")


def split_name(url: str) -> tuple[str, str]:
    """Return the address of the folder in which a file is, and the file's name there.

    Raises:
        ValueError: An address that names no file.
    """
    parts = urlsplit(url)
    folder, _, last = parts.path.rpartition("/")
    name = unquote(last) if parts.scheme in {"http", "https"} else last
    if not name or "/" in name or not (folder or parts.netloc):
        raise ValueError(
            f"url: expected one that ends with a file's name, found '{shown(bare(url))}'"
        )
    return urlunsplit((parts.scheme, parts.netloc, folder, parts.query, "")), name


def _hub(url: str) -> HubSource:
    found = _HUB.fullmatch(url)
    if found is None:
        form = "hf://datasets/org/name[@revision][/folder]"
        raise ValueError(f"url: expected {form}, found {quoted(bare(url), 200)}")
    return HubSource(
        found["repo"],
        repo_type="dataset" if found["kind"] == "datasets/" else "model",
        revision=found["revision"] and found["revision"].replace("%2F", "/"),
        folder=found["folder"] or "",
    )
