"""Web pages that come in place of a file: logins, portals, errors that are called a success."""

__all__ = ["begins_as_page", "is_page"]

_TYPES = {"text/html", "application/xhtml+xml"}
_ENDINGS = (".htm", ".html", ".xhtml", ".xht")
_BEGINNINGS = (b"<!doctype html", b"<html")


def is_page(content_type: str, name: str) -> bool:
    """Whether an answer of this type is a page, while the name asks for something else."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind in _TYPES and not name.lower().endswith(_ENDINGS)


def begins_as_page(data: bytes, name: str) -> bool:
    """Whether an answer begins as pages do, whatever its type is said to be."""
    start = data[:1000].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return start.startswith(_BEGINNINGS) and not name.lower().endswith(_ENDINGS)
