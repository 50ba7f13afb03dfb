"""What a user says of a cache: where it is, and what becomes of shards that are not in use."""

import hashlib
import os
import re
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote, urlsplit

from shardproof._base.arguments import checked, count
from shardproof._base.messages import quoted
from shardproof._base.opening import refuse_no_path
from shardproof.fetching.sources._urls import WITHOUT_USERS, resource_of

Cleanup = Literal["auto", "keep"]  # "auto": they are removed; "keep": they stay
_VARIABLE = "HF_SHARD_CACHE_CLEANUP"

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_MAX_BYTES = 200
_DEFAULT_PORTS = {"http": 80, "https": 443}


def cache_root(
    cache_dir: str | os.PathLike[str],
    source_url: str,
    split: str | None = None,
    *,
    resource: str | None = None,
) -> Path:
    """Return the directory for the shards of one source."""
    refuse_no_path(cache_dir=cache_dir)
    kind, owner, name = _source(source_url)
    if resource is not None:
        said_by_url = {source_url, resource_of(source_url), resource_of(f"{source_url}/")}
        if resource not in said_by_url:  # its digest only: it may be a secret
            digest = hashlib.blake2b(resource.encode(errors="surrogatepass"), digest_size=8)
            name += f"?{digest.hexdigest()}"
    return Path(cache_dir, f"{kind}_shards", _part(owner), _part(name), _part(split or "all"))


def _source(url: str) -> tuple[str, str, str]:
    """Return the kind of a source, its owner and its name."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        return "own", "", url
    if scheme == "hf":
        repository, at, revision = rest.removeprefix("datasets/").partition("@")
        owner, slash, name = repository.partition("/")
        if not slash:
            owner, name = "", repository
        if not rest.startswith("datasets/"):
            owner = f"{owner}/"  # such as 'models/', which is no owner's name
        return "hf", owner, name + at + revision
    if scheme in _DEFAULT_PORTS:
        where = urlsplit(url)
        host = f"{where.hostname or ''}_{where.port or _DEFAULT_PORTS[scheme]}"
        return "http", host, _directory(rest.removeprefix(where.netloc).removeprefix("/"))
    user_and_host, _, path = rest.partition("/")
    user, at, host = user_and_host.rpartition("@")
    if f"{scheme}://" not in WITHOUT_USERS:
        user = user.partition(":")[0]
    return _part(scheme), user + at + host, _directory(path)


def _directory(path: str) -> str:
    """Return a path without the slash at its end, so that it is the same with and without one."""
    return path[:-1] if len(path) > 1 and path[-1] == "/" and path[-2] != "/" else path


def _part(text: str) -> str:
    """Return a safe file name for a text, and for no other text."""
    if text in {"", "_"}:
        return "%5F" if text else "_"
    safe = quote(text, safe="/@", errors="surrogatepass").replace("/", "+").replace("~", "%7E")
    if safe.startswith("."):
        safe = f"%2E{safe[1:]}"
    if len(safe) > _MAX_BYTES:
        digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16)
        safe = f"{safe[:_MAX_BYTES]}~{digest.hexdigest()}"
    return safe


class CleanupPolicy(NamedTuple):
    """What becomes of shards that are not in use: all stay, all go, or so many bytes stay."""

    cleanup: Cleanup
    max_cache_bytes: int | None = None


@checked
def cleanup_policy(
    cleanup: Cleanup | None = None, max_cache_bytes: int | None = None
) -> CleanupPolicy:
    """Return what a user wants: the arguments, else the environment variable, else ``"auto"``."""
    if max_cache_bytes is not None:
        max_cache_bytes = count("max_cache_bytes", max_cache_bytes, 1)
        if cleanup == "keep":
            problem = "expected None with cleanup='keep', which removes nothing"
            raise ValueError(f"max_cache_bytes: {problem}")
    if cleanup is not None or max_cache_bytes is not None:
        return CleanupPolicy(cleanup or "auto", max_cache_bytes)
    text = os.environ.get(_VARIABLE, "").strip()
    if text in {"", "auto", "keep"}:
        return CleanupPolicy("keep" if text == "keep" else "auto")
    size = re.fullmatch(r"(?a:(\d{1,18}))\s?([a-z]*)", text, re.IGNORECASE)
    unit = _UNITS.get(size[2].lower()) if size else None
    if size is None or unit is None or not int(size[1]):
        problem = f"expected 'auto', 'keep' or a size such as '500GB', found {quoted(text)}"
        raise ValueError(f"{_VARIABLE}: {problem}")
    return CleanupPolicy("auto", int(size[1]) * unit)
