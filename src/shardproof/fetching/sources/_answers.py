"""Believe what a web server answers only as far as it agrees with itself and the request."""

import datetime
import email.utils
import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardproof._base.messages import plain, quoted, shown
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import ReadRequest, RemoteFile, Response
from shardproof.fetching.sources._urls import bare

if TYPE_CHECKING:
    import httpcore

    from shardproof.fetching.sources._client import WebAnswer

LATER = {408, 425, 429}
"""Of 4xx, those that say: not now (RFC 9110, RFC 8470, RFC 6585)."""

_LARGE = 4 * 2**20
_PIECE = 2**20
_ENTITY_TAG = re.compile(r'"[ -~]{1,1000}"')  # one that can be sent back
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.ASCII)
_TYPES = {"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"}
_ENDINGS = (".htm", ".html", ".xhtml", ".xht")
_BEGINNINGS = (b"<!doctype html", b"<html")
_BEFORE = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s+|<\?xml.*?\?>|<!--.*?-->)*", re.DOTALL)
_MOST_LOOKED_AT = 2**12  # bytes


def refuse_status(answer: "WebAnswer", address: str, code: str = "") -> None:
    """Raise what the status means; some servers have a code of their own for it."""
    status, reason = answer.status, answer.response.extensions["reason_phrase"].decode("latin-1")
    problem = f"'{shown(bare(address))}' answers {status} {plain(reason)}".rstrip()
    if code:
        problem += f" ({quoted(code)})"
    if status in {401, 403}:
        problem += ": credentials are missing, wrong or not enough"
    if status in {206, 416}:
        raise SourceError(f"{problem}, to a request for bytes it should have", kind="other-bytes")
    is_for_now = status >= 500 or status in LATER
    raise SourceError(
        problem,
        kind="broken" if is_for_now else "refused",
        retry_after=seconds_to_wait(answer.headers.get("retry-after")) if is_for_now else None,
    )


def refuse_encoded(answer: "WebAnswer") -> None:
    """Raise if the bytes come encoded, although they were asked for as they are."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        found = quoted(encoding, 20)
        problem = f"asked for bytes as they are, it says that they are encoded: {found}"
        raise SourceError(problem, kind="other-bytes")


def whole_of(answer: "WebAnswer", name: str) -> Response:
    """Return the whole file, which comes from its first byte on."""
    size = length_of(answer)
    chunked = "transfer-encoding" in answer.headers
    chunks = _chunks(answer, size)
    first = next(chunks, b"")
    ranges = ranges_of(answer)
    return Response(
        file=RemoteFile(name, size, identity_of(answer), has_ranges=ranges == "bytes"),
        start=0,
        stop=size,
        chunks=itertools.chain([first], chunks),
        is_framed=size is not None or chunked,
        is_page=is_page(name, answer.headers.get("content-type", ""), first),
        has_ranges=ranges != "none",
    )


def part_of(answer: "WebAnswer", request: ReadRequest) -> Response:
    """Return the part of a file that was requested, if that is what the answer holds."""
    start, stop = request.start, request.stop
    said = answer.headers.get("content-range", "")
    found = _CONTENT_RANGE.fullmatch(said.strip())
    if found is None:
        raise SourceError(f"which bytes it gives can't be read: {quoted(said)}", kind="other-bytes")
    first, last = int(found[1]), int(found[2])
    size = None if found[3] == "*" else int(found[3])
    if first != start or last < first or last >= (stop or 10**18) or last >= (size or 10**18):
        wanted = f"bytes {start}-{'' if stop is None else stop - 1}"
        raise SourceError(f"asked for {wanted}, it gives {quoted(said)}", kind="other-bytes")
    n_bytes = last + 1 - first
    if (length := length_of(answer)) not in {None, n_bytes}:
        problem = f"it gives {quoted(said)}, and says that these are {length} bytes"
        raise SourceError(problem, kind="other-bytes")
    file = RemoteFile(request.name, size, identity_of(answer))
    chunks = _no_more(_chunks(answer, n_bytes), n_bytes)
    is_of_page = is_page(request.name, answer.headers.get("content-type", ""))
    return Response(file, first, last + 1, chunks, is_page=is_of_page)


def _no_more(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """Refuse more bytes than were announced: a reader takes only those, and would not notice."""
    for chunk in chunks:
        n_bytes -= len(chunk)
        if n_bytes < 0:
            raise SourceError("it gives more bytes than it says", kind="other-bytes")
        yield chunk


def _chunks(answer: "WebAnswer", n_bytes: int | None) -> Iterator[bytes]:
    """Yield the body as it comes; a large one past the layers of libraries."""
    body = answer.response.iter_stream()  # the connection lives as long as it does
    if n_bytes is None or n_bytes < _LARGE or "transfer-encoding" in answer.headers:
        yield from body
        return
    connection: httpcore.NetworkStream = answer.response.extensions["network_stream"]
    chunk = next(body, b"")
    while chunk:
        yield chunk
        n_bytes -= len(chunk)
        chunk = connection.read(min(n_bytes, _PIECE), answer.patience) if n_bytes > 0 else b""
    if n_bytes:
        raise SourceError(f"the connection ended {n_bytes} bytes too early")


def length_of(answer: "WebAnswer") -> int | None:
    """Return how many bytes the answer says that it has."""
    text = answer.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def ranges_of(answer: "WebAnswer") -> str:
    """Return which parts of files the server gives, as it says: "bytes", "none" or nothing."""
    return str(answer.headers.get("accept-ranges", "")).strip().lower()


def identity_of(answer: "WebAnswer") -> str | None:
    """Return the entity tag, if it is strong: a weak one may outlast a change (RFC 9110, 8.8.1)."""
    tag = answer.headers.get("etag", "")
    return tag if _ENTITY_TAG.fullmatch(tag) else None


def sendable_tag(identity: str) -> str:
    """Return an identity that can be sent back as an entity tag."""
    if not _ENTITY_TAG.fullmatch(identity):
        problem = f"no entity tag of it is known, but {quoted(identity, 40)}"
        raise SourceError(problem, kind="other-bytes")
    return identity


def is_page(name: str, content_type: str, start: bytes = b"") -> bool:
    """Whether an answer is a page by its type or first bytes, while the name asks for no page."""
    kind = content_type.partition(";")[0].strip().lower()
    begins = _BEFORE.sub(b"", start[:_MOST_LOOKED_AT].lower(), count=1).startswith(_BEGINNINGS)
    return (kind in _TYPES or begins) and not name.lower().endswith(_ENDINGS)


def seconds_to_wait(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for; None for nothing that can be read."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:20])
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    now = datetime.datetime.now(moment.tzinfo)
    return max(0.0, (moment - now).total_seconds())
