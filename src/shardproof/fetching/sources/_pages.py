"""Web pages that come in place of a file: logins, portals, errors that are called a success."""

import re

__all__ = ["begins_as_page", "is_page", "is_too_short"]

_TYPES = {"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"}
_ENDINGS = (".htm", ".html", ".xhtml", ".xht")
_BEGINNINGS = (b"<!doctype html", b"<html")
_UTF8, _UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_OPENINGS = (b"<?xml", b"<!--")
_BEFORE = re.compile(rb"(?:\s+|<\?xml.*?\?>|<!--.*?-->)*", re.DOTALL)
_MOST = 2**12
"""Bytes that are looked at."""


def is_page(content_type: str, name: str) -> bool:
    """Whether an answer of this type is a page, while the name asks for something else."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind in _TYPES and not name.lower().endswith(_ENDINGS)


def begins_as_page(data: bytes, name: str) -> bool:
    """Whether an answer begins as pages do, whatever its type is said to be."""
    return _start(data).startswith(_BEGINNINGS) and not name.lower().endswith(_ENDINGS)


def is_too_short(data: bytes) -> bool:
    """Whether these first bytes of an answer don't tell yet how it begins."""
    start, telling = _start(data), (*_BEGINNINGS, *_OPENINGS, _UTF8, *_UTF16)
    has_no_end = start.startswith(_OPENINGS) or any(each.startswith(start) for each in telling)
    return has_no_end and len(data) < _MOST


def _start(data: bytes) -> bytes:
    """Return what stands behind a byte order mark, blanks, an XML declaration and comments."""
    data = data[:_MOST].lower().removeprefix(_UTF8)
    if data.startswith(_UTF16):
        data = data[2:].replace(b"\0", b"")  # as every other byte of a page is
    return _BEFORE.sub(b"", data, count=1)
