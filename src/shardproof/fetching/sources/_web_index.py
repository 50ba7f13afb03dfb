"""Web servers that list their folders, as nginx, Apache, Caddy and http.server do: in a page."""

import html
import re
from collections.abc import Iterator
from urllib.parse import unquote, urljoin, urlsplit

_LINK = re.compile(r"<a\s", re.IGNORECASE)
# Matched at the start of what follows; nothing in it is searched twice, however long the page is.
_TARGET = re.compile(r"""(?i)[^>]*?\bhref\s*=\s*(?:"([^"]*)|'([^']*)|([^\s>]*))""")


def names_on(page: str, folder: str) -> Iterator[str]:
    """Yield the names just below a folder's address to which its page links; of folders with /."""
    base = unquote(urlsplit(folder).path)
    for text in _LINK.split(page)[1:]:
        if (found := _TARGET.match(text)) is None:
            continue
        try:
            parts = urlsplit(urljoin(folder, html.unescape(found[found.lastindex or 0])))
        except ValueError:  # a host that is none
            continue
        path = unquote(parts.path)
        name = path.removeprefix(base)
        is_below = path.startswith(base) and parts[:2] == urlsplit(folder)[:2]
        is_name = name.rstrip("/") not in {"", ".", ".."} and "/" not in name[:-1]
        if is_below and is_name and not parts.query:  # which sorts the page
            yield name
