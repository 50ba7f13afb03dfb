"""Addresses for messages, without what is secret in them, and addresses of files below others."""

import hashlib
from urllib.parse import quote, urlsplit, urlunsplit

__all__ = ["bare", "below", "has_port_of_none", "resource_of", "shown"]


def bare(url: str) -> str:
    """Return an address without credentials, query and fragment, which may hold secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return shown(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))


def shown(url: str) -> str:
    """Return an address whose control characters are spelled out, as in ``%1B``."""
    if url.isprintable():
        return url
    return "".join(c if c.isprintable() else quote(c, errors="backslashreplace") for c in url)


def has_port_of_none(url: str) -> bool:
    """Whether an address has a port that no host has: above 65535, or no number."""
    try:
        urlsplit(url).port  # noqa: B018 - it is looked at only here
    except ValueError:
        return True
    return False


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
