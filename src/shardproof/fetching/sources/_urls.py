"""Show addresses without what is secret in them, and tell their parts."""

import hashlib
import re
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

_SCHEME = re.compile(r"([a-z0-9+._-]+)://", re.ASCII | re.IGNORECASE)
_MAX_PORT = 2**16 - 1
WITHOUT_USERS = {
    *("file://", "local://", "memory://", "zip://", "tar://", "libarchive://"),
    *("abfs://", "abfss://"),  # container@account
    "github://",  # owner:repository@revision
}
"""In which an ``@`` is part of a name."""


def bare(url: str) -> str:
    """Return an address without credentials in any of its chain, nor queries of the web."""
    return shown("::".join(map(_bare, _chain(url))))


def _bare(url: str) -> str:
    scheme, place, path = _cut(url)
    if _may_be_a_password(url):
        return f"{scheme}..."
    if is_web(url):
        scheme, path = scheme.lower(), re.split("[?#]", path, maxsplit=1)[0]
    return scheme + place.rpartition("@")[2] + path.rstrip("/")


def has_no_host(url: str) -> bool:
    """Whether it can't be told where a host begins: a ``/`` in a password seems to end it."""
    return any(map(_may_be_a_password, _chain(url)))


def _may_be_a_password(url: str) -> bool:
    _, place, path = _cut(url)
    port = place.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
    is_port = not port or (port.isascii() and port.isdigit() and int(port[:6]) <= _MAX_PORT)
    if set(place.rpartition("@")[0]) & set("?#"):  # a library would let the host end there
        return True
    return not is_port and ("@" in path or (is_web(url) and "@" not in place))


def secrets_of(url: str) -> set[str]:
    """Return what must be in no message: passwords, users, queries of the web."""
    found = set()
    for each in _chain(url):
        _, place, path = _cut(each)
        user, _, password = place.rpartition("@")[0].partition(":")
        found |= {password or user, path.partition("?")[2] if is_web(each) else ""}
    return {text for secret in found for text in (secret, unquote(secret)) if text}


def _chain(url: str) -> list[str]:
    """Return the addresses that are one in another; some begin none, and have ``::`` in names."""
    return [url] if is_web(url) or is_on_disk(url) else url.split("::")


def _cut(url: str) -> tuple[str, str, str]:
    """Cut an address into scheme, user and host, and what follows."""
    found = _SCHEME.match(url)
    scheme = found[0] if found else ""
    rest = url[len(scheme) :]
    if scheme.lower() in WITHOUT_USERS:
        return scheme, "", rest
    place = re.split("[/?#]" if is_web(url) else "/", rest, maxsplit=1)[0]
    return scheme, place, rest[len(place) :]


def is_web(url: str) -> bool:
    """Whether an address is one of a web server."""
    return url.lower().startswith(("http://", "https://"))


def is_on_disk(url: str) -> bool:
    """Whether an address is a path of this machine, and nothing else, whatever is in it."""
    return url.lower().startswith(("file://", "local://"))


def parted(url: str) -> SplitResult:
    """Return the parts of a web address; raise a ValueError without secrets if it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        problem = f"url: expected http(s)://host/..., found '{shown(bare(url))}'"
        raise ValueError(problem) from None


def shown(url: str) -> str:
    """Return an address whose control characters are spelled out, as in ``%1B``."""
    if url.isprintable():
        return url
    return "".join(c if c.isprintable() else quote(c, errors="backslashreplace") for c in url)


def below(url: str, name: str) -> str:
    """Return the address of a file below an address, whose query stays."""
    parts = urlsplit(url)
    path = f"{parts.path.rstrip('/')}/{quote(name)}" if name else parts.path
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def resource_of(url: str) -> str:
    """Return what tells two addresses apart, queries too, and gives no secret away."""
    parts = urlsplit(url)
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return hashlib.blake2b(address.encode(errors="surrogatepass"), digest_size=16).hexdigest()
