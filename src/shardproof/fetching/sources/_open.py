"""Open the source that an address names."""

import re
from urllib.parse import unquote

from shardproof._base.arguments import checked
from shardproof._base.messages import quoted, shown
from shardproof.fetching.sources._fsspec import FsspecSource
from shardproof.fetching.sources._http import HttpSource
from shardproof.fetching.sources._hub import HubSource
from shardproof.fetching.sources._urls import bare, is_web, parted

_HUB = re.compile(
    r"hf://(?P<kind>datasets/|models/)?(?P<repo>(?!datasets/|models/|spaces/)[^/@?#]+/[^/@?#]+)(@(?P<revision>[^/]+))?(/(?P<subfolder>.*))?"
)
_OF_DISKS = {"file", "local"}
_SCHEMES = re.compile(r"[a-z0-9+._-]+(::[a-z0-9+._-]+)*", re.ASCII)


@checked
def open_source(url: str) -> HubSource | HttpSource | FsspecSource:
    """Return the source that an address names; a ``with`` block closes it.

    Args:
        url: ``hf://datasets/org/name[@revision][/folder]``, or ``hf://org/name`` for a model;
            ``https://...`` or ``http://...``; what else fsspec opens, such as ``s3://bucket/folder``,
            ``gs://``, ``file:///folder``, ``memory://``. A slash within a revision is ``%2F``.

    Raises:
        ValueError: An address of another kind.
        ImportError: The package that talks to it is not installed; the message names it.

    Example:
        >>> open_source("https://example.org/shards").url
        'https://example.org/shards'
    """
    first, mark, rest = url.partition("://")
    scheme, url = first.lower(), f"{first.lower()}{mark}{rest}"
    if not mark or not _SCHEMES.fullmatch(scheme):
        found = quoted(bare(url))
        raise ValueError(f"url: expected hf://, https://, s3://, file:///..., found {found}")
    if scheme in {"http", "https"}:
        return HttpSource(url)
    if scheme != "hf":
        return FsspecSource(url)
    match = _HUB.fullmatch(url)
    if match is None:
        form = "hf://datasets/org/name[@revision][/folder]"
        without_query = bare(re.split("[?#]", url, maxsplit=1)[0])  # which may hold a token
        raise ValueError(f"url: expected {form}, found {quoted(without_query, 200)}")
    return HubSource(
        match["repo"],
        repo_type="dataset" if match["kind"] == "datasets/" else "model",
        revision=match["revision"] and match["revision"].replace("%2F", "/"),
        subfolder=match["subfolder"] or "",
    )


def is_repository(url: str) -> bool:
    """Whether an address is that of a whole repository of the Hub, at a revision or at none."""
    scheme, mark, rest = url.partition("://")
    found = _HUB.fullmatch(f"{scheme.lower()}{mark}{rest}")
    return found is not None and not found["subfolder"]


def split_name(url: str) -> tuple[str, str]:
    """Return the address of the folder in which a file is, and the file's name there."""
    if is_web(url):
        parts = parted(url)
        path, _, last = parts.path.rpartition("/")
        folder = parts._replace(path=path, fragment="").geturl()
        folder, name = folder if path or parts.netloc else "", unquote(last)
    else:
        folder, _, name = url.rpartition("/")
        scheme, _, rest = folder.partition("://")
        if "::" in rest and scheme.lower() not in {"hf", *_OF_DISKS}:  # zip://a::file:///z.zip
            found = f"'{shown(bare(url))}', which is within another file"
            found += "; give the address of its folder, and name="
            raise ValueError(f"url: expected one that ends with a file's name, found {found}")
        if folder.endswith((":/", "://")):  # nothing but a scheme, unless there is a root
            is_root = folder.endswith("://") and scheme.lower().split("::")[-1] in _OF_DISKS
            folder = f"{folder}/" if is_root else ""
    if not name or "/" in name or not folder:
        found = f"'{shown(bare(url))}'"
        raise ValueError(f"url: expected one that ends with a file's name, found {found}")
    return folder, name
