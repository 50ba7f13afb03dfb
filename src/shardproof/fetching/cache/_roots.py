"""Which directory of a cache belongs to which source: never one to two, never one in another.

Each is four directories below the cache's own: ``<kind>_shards/<owner>/<name>/<split>``. Since none
is in another, no shard of one source has the path of another's.
"""

import hashlib
import os
from pathlib import Path
from urllib.parse import quote, urlsplit

from shardproof._base.paths import refuse_empty
from shardproof.fetching.sources._urls import WITHOUT_USERS, resource_of

__all__ = ["cache_root"]

_MAX_BYTES = 200
_DEFAULT_PORTS = {"http": 80, "https": 443}


def cache_root(
    cache_dir: str | os.PathLike[str],
    source_url: str,
    split: str | None = None,
    *,
    resource: str | None = None,
) -> Path:
    """Return the directory for the shards of one source.

    Args:
        cache_dir: The user's cache.
        source_url: Where the source is, without credentials; or the name of one that has no URL.
        split: The part of a data set that is meant; ``"all"`` by default.
        resource: What tells it from other sources that have the same URL, as their queries do.

    Example:
        >>> cache_root("data", "hf://datasets/org/name@v1", "train").as_posix()
        'data/hf_shards/org/name@v1/train'
        >>> cache_root("data", "https://example.org/a/b").as_posix()
        'data/http_shards/example.org_443/a+b/all'
    """
    refuse_empty(cache_dir=cache_dir)
    kind, owner, name = _source(source_url)
    name += _mark(source_url, resource)
    return Path(cache_dir, f"{kind}_shards", _part(owner), _part(name), _part(split or "all"))


def _mark(url: str, resource: str | None) -> str:
    """Nothing for a source whose URL says all; else what tells it from others, as a digest."""
    if resource is None or resource in {url, resource_of(url), resource_of(f"{url}/")}:
        return ""
    digest = hashlib.blake2b(resource.encode(errors="surrogatepass"), digest_size=8)
    return f"?{digest.hexdigest()}"


def _source(url: str) -> tuple[str, str, str]:
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        return "own", "", url
    if scheme == "hf":
        return "hf", *_repository(rest)
    if scheme in _DEFAULT_PORTS:
        where = urlsplit(url)
        host = f"{where.hostname or ''}_{where.port or _DEFAULT_PORTS[scheme]}"
        return "http", host, _directory(rest.removeprefix(where.netloc).removeprefix("/"))
    user_and_host, _, path = rest.partition("/")
    user, at, host = user_and_host.rpartition("@")
    if f"{scheme}://" not in WITHOUT_USERS:
        user = user.partition(":")[0]
    return _part(scheme), user + at + host, _directory(path)


def _repository(path: str) -> tuple[str, str]:
    """Owner and name of a data set, or of what else there is on the hub."""
    repository, at, revision = path.removeprefix("datasets/").partition("@")
    owner, slash, name = repository.partition("/")
    if not slash:
        owner, name = "", repository
    if not path.startswith("datasets/"):
        owner = f"{owner}/"  # such as 'models/', which is no owner's name
    return owner, name + at + revision


def _directory(path: str) -> str:
    """The same with and without a slash at its end."""
    return path[:-1] if len(path) > 1 and path[-1] == "/" and path[-2] != "/" else path


def _part(text: str) -> str:
    """One safe file name for one text, and for no other."""
    if text in {"", "_"}:
        return "%5F" if text else "_"
    safe = quote(text, safe="/@", errors="surrogatepass").replace("/", "+").replace("~", "%7E")
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    if len(safe) > _MAX_BYTES:
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16)
        safe = f"{safe[:_MAX_BYTES]}~{digest.hexdigest()}"
    return safe
