"""Requests and answers of HTTP as values, and the right answer to a request for a file."""

import dataclasses
import email.utils
import enum
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, Self

from shardproof.testing.samples._keywords import expect

Header = tuple[str, str]  # name and value; a header is a tuple of these: a name may come twice
_BLOCK = 2**20


class Incoming(NamedTuple):
    """One request as it came."""

    method: str
    target: str  # what stood in the request line, undecoded, with its query
    headers: Mapping[str, str]  # names in lower case; what came repeatedly is joined with ", "
    body: bytes
    connection: int  # its number, from 1


@dataclasses.dataclass(frozen=True, slots=True)
class Content:
    """The bytes of one file, from memory or from a file that is read only when it is sent."""

    source: bytes | Path  # the bytes, or the absolute path where they are
    size: int
    sha256: str  # in hexadecimal
    modified: float  # seconds since the epoch

    @classmethod
    def of(cls, source: bytes | os.PathLike[str]) -> Self:
        """Take bytes or a regular file, which is read through once, for its digest."""
        if isinstance(source, bytes):
            return cls(source, len(source), hashlib.sha256(source).hexdigest(), time.time())
        expect("content", source, os.PathLike, bytes)
        path = Path(os.path.abspath(source))
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"content: expected a regular file, found something else at '{path}'")
        with open(path, "rb", buffering=0) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, found.st_size, digest, found.st_mtime)

    def blocks(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield these bytes in blocks, so that no large file is copied as a whole."""
        if isinstance(self.source, bytes):
            for at in range(start, min(stop, self.size), _BLOCK):
                yield self.source[at : min(at + _BLOCK, stop)]
            return
        with open(self.source, "rb", buffering=0) as file:
            file.seek(start)
            while start < stop and (block := file.read(min(_BLOCK, stop - start))):
                start += len(block)
                yield block

    def read(self, start: int, stop: int) -> bytes:
        return b"".join(self.blocks(start, stop))


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """The bytes of a content from ``start`` up to ``stop``."""

    content: Content
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start

    def until(self, at: int) -> "Part":
        """Return its first bytes, at most this many."""
        return Part(self.content, self.start, min(self.start + at, self.stop))

    def beyond(self, at: int) -> "Part":
        """Return what follows `until` the same place."""
        return Part(self.content, min(self.start + at, self.stop), self.stop)


Piece = bytes | Part | float  # a piece of a body; a number is no piece but a wait, in seconds


class End(enum.Enum):
    """What follows the last byte of an answer."""

    KEEP = "the next request"
    CLOSE = "the end of the connection"
    RESET = "a reset of the connection"
    STALL = "nothing, until the client goes or the hub closes"


@dataclasses.dataclass(frozen=True, slots=True)
class Wire:
    """What goes over the wire: a header, pieces of a body, and an end."""

    status: int | None  # None for no status line and no header
    headers: tuple[Header, ...] = ()  # beyond Date and Server
    body: Iterable[Piece] = ()  # not sent in answer to HEAD, unless there is no header either
    end: End = End.KEEP


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """The right answer to a request."""

    status: int
    headers: tuple[Header, ...]  # beyond Date, Server and Content-Length
    part: Part  # the body

    def wire(self) -> Wire:
        """Return it as it goes over the wire unharmed."""
        length = () if self.status == 304 else (("Content-Length", str(self.part.size)),)
        return Wire(self.status, (*self.headers, *length), (self.part,))


def answer(
    status: int, body: bytes = b"", *headers: Header, content_type: str = "text/plain"
) -> Answer:
    """Return an answer whose body is made for it."""
    part = Part(Content.of(body), 0, len(body))
    return Answer(status, (("Content-Type", content_type), *headers), part)


def answer_file(incoming: Incoming, content: Content, etag: str, *headers: Header) -> Answer:
    """Answer a request for a file: conditions first, then the range (RFC 9110, 13.2.2)."""
    tag = f'"{etag}"'
    modified = email.utils.formatdate(content.modified, usegmt=True)
    said = (("ETag", tag), ("Last-Modified", modified), ("Accept-Ranges", "bytes"), *headers)
    # Weak comparison (RFC 9110, 13.1.2).
    kept = incoming.headers.get("if-none-match", "").split(",")
    if not {tag, "*"}.isdisjoint(each.strip().removeprefix("W/") for each in kept):
        return Answer(304, said, Part(content, 0, 0))
    said = (("Content-Type", "application/octet-stream"), *said)
    wanted = incoming.headers.get("range") if incoming.method == "GET" else None
    if incoming.headers.get("if-range", tag) not in {tag, modified}:
        wanted = None
    asked = _range(wanted or "", content.size)
    if asked is None:
        return Answer(200, said, Part(content, 0, content.size))
    if not asked:
        return answer(416, b"", ("Content-Range", f"bytes */{content.size}"), *said[1:])
    span = f"bytes {asked.start}-{asked.stop - 1}/{content.size}"
    return Answer(206, (*said, ("Content-Range", span)), Part(content, asked.start, asked.stop))


_RANGE = re.compile(r"bytes=([0-9]*)-([0-9]*)", re.IGNORECASE)


def _range(value: str, size: int) -> range | None:
    """Return the bytes that are asked for, which may be none; None for a header to ignore."""
    found = _RANGE.fullmatch(value)
    if found is None or not any(found.groups()):
        return None
    first, last = found.groups()
    if not first:
        return range(max(0, size - _number(last)), size)
    if last and _number(last) < _number(first):
        return None
    return range(_number(first), min(size, _number(last) + 1) if last else size)


def _number(digits: str) -> int:
    # Python refuses to convert more than 4300 digits; no file is larger than 20 of them say.
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < 20 else 10**20
