"""What can go wrong between a server and its client: its names, when it comes, what is sent."""

import dataclasses
import enum
import fnmatch
import itertools
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from typing import NamedTuple, TypedDict

from shardproof.testing.faults.hub._answers import (
    Answer,
    End,
    Header,
    Incoming,
    Part,
    Piece,
    Wire,
    answer,
)
from shardproof.testing.samples._keywords import expect, expect_number, integer

OTHER_HOST = "localhost"  # to a client of 127.0.0.1 another host, and yet none outside


class HubFault(enum.StrEnum):
    """The faults, by name; half is the first half of the body, unless ``at`` says where.

    docs/loopback-hub.md has the table of what the client gets.
    """

    STATUS_401 = "status-401"  # unauthorized, instead of the file
    STATUS_403 = "status-403"  # forbidden, instead of the file
    STATUS_404 = "status-404"  # not found, though it is there
    STATUS_429 = "status-429"  # too many requests; Retry-After: 0, or as said
    STATUS_500 = "status-500"  # the server's own error
    STATUS_503 = "status-503"  # not available; Retry-After: 0, or as said
    RETRY_AFTER_ABSURD = "retry-after-absurd"  # 503, to be tried again in 10**20 seconds
    RETRY_AFTER_DATE = "retry-after-date"  # 503, to be tried again at a date, one second from now
    RETRY_AFTER_GARBAGE = "retry-after-garbage"  # 503, to be tried again soon

    CLOSED_BEFORE_HEADER = "closed-before-header"  # the end, as soon as the request has come
    RESET_BEFORE_HEADER = "reset-before-header"  # a reset, as soon as the request has come
    RESET_IN_BODY = "reset-in-body"  # the connection is reset after half of the body
    NOT_HTTP = "not-http"  # the greeting of an SSH server, then the end of the connection

    TRUNCATED = "truncated"  # the right Content-Length, half of the body, the end of the connection
    TRUNCATED_WITHOUT_LENGTH = "truncated-without-length"  # no length, half of the body, the end
    CHUNKED_TRUNCATED = "chunked-truncated"  # a chunked body that ends within a chunk
    CHUNKED_BAD_SIZE = "chunked-bad-size"  # a chunked body whose second chunk has the size zz

    LENGTH_TOO_SMALL = "length-too-small"  # the whole body, and a Content-Length of half of it
    LENGTH_TOO_LARGE = "length-too-large"  # the whole body, and a Content-Length of one byte more
    LENGTH_NEGATIVE = "length-negative"  # the whole body, and Content-Length: -1
    LENGTH_TWICE = "length-twice"  # the whole body; a Content-Length of half of it, and one of all
    LENGTH_NOT_A_NUMBER = "length-not-a-number"  # the whole body, and Content-Length: many

    FLIPPED = "flipped"  # one bit is wrong: the lowest of the byte in the middle, or at
    HTML_PAGE = "html-page"  # a web page of exactly the size of the body, with the right status
    EMPTY_BODY = "empty-body"  # 200 and no byte, said openly: Content-Length: 0
    ENDLESS_BODY = "endless-body"  # no Content-Length, the body, then zeros until the client goes
    GZIP_LIE = "gzip-lie"  # Content-Encoding: gzip over a body that is not compressed
    GZIP_BOMB = "gzip-bomb"  # Content-Encoding: gzip, and 1 MiB that unpacks to 1 GiB of zeros

    RANGE_UNASKED = "range-unasked"  # 206 with the first half, for a request without Range
    RANGE_WRONG_START = "range-wrong-start"  # 206 from the first byte on, or from the second
    RANGE_WRONG_TOTAL = "range-wrong-total"  # 206 that says that the file has one more byte
    RANGE_OTHER_ETAG = "range-other-etag"  # 206 with bytes and ETag of another version of the file
    RANGE_IGNORED = "range-ignored"  # 200 with the whole file, for a request with Range
    RANGE_REFUSED = "range-refused"  # 416, for a range that the file has

    REDIRECT_LOOP = "redirect-loop"  # 302 to the same place
    REDIRECT_TO_FILE = "redirect-to-file"  # 302 to file:///etc/passwd
    REDIRECT_TO_OTHER_HOST = "redirect-to-other-host"  # 302 to localhost, where it is
    REDIRECT_WITHOUT_LOCATION = "redirect-without-location"  # 302, and no word where to

    HUGE_HEADER = "huge-header"  # a header line of 1 MiB before the body
    UNSAFE_FILE_NAME = "unsafe-file-name"  # Content-Disposition: attachment; filename="../../x"

    STALL_BEFORE_HEADER = "stall-before-header"  # silence, until the client goes or the hub closes
    STALL_AFTER_HEADER = "stall-after-header"  # the header, then silence
    STALL_IN_BODY = "stall-in-body"  # half of the body, then silence
    DRIP = "drip"  # one byte of the body every 0.2 s, or every interval


_OPTIONS = {
    "at": "reset-in-body truncated truncated-without-length chunked-truncated chunked-bad-size "
    "flipped stall-in-body",
    "retry_after": "status-429 status-503",
    "interval": "drip",
}
"""Each option that only some faults have, and these faults."""


class FaultOptions(TypedDict, total=False):
    """When a fault comes, and what only some faults have; `Hub.fault` describes them."""

    nth: int
    times: int | None
    method: str | None
    at: int | None
    retry_after: str | None
    interval: float | None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rule:
    """What goes wrong, for which requests, and how often; `Hub.fault` says what is refused."""

    match: str
    fault: HubFault
    nth: int = 1
    times: int | None = None
    method: str | None = "GET"
    at: int | None = None
    retry_after: str | None = None
    interval: float | None = None
    # How many attempts at each file came that it could have been for.
    _seen: Counter[str] = dataclasses.field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        expect("match", self.match, str)
        if self.method is not None:
            expect("method", self.method, str)
            if self.method != self.method.upper():
                raise ValueError(f"method: expected {self.method.upper()!r}, found {self.method!r}")
        for name, faults in _OPTIONS.items():
            if getattr(self, name) is not None and self.fault not in faults.split():
                known = ", ".join(sorted(faults.split()))
                raise ValueError(f"{name}: {self.fault} has no such option; {known} has")
        integer("nth", self.nth, at_least=1)
        for name, least in (("times", 1), ("at", 0)):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), at_least=least)
        if self.interval is not None:
            expect_number("interval", self.interval)
        if self.retry_after is not None:
            expect("retry_after", self.retry_after, str)
            line = self.retry_after
            if not (line.isascii() and line.isprintable()):
                raise ValueError(f"retry_after: expected a line of ASCII, found {line!r}")

    def harmed(self, right: Answer, incoming: Incoming, elsewhere: str) -> Wire:
        """Return what is sent in the place of the right answer; see `Case`."""
        return HARMS[self.fault](Case(right, incoming, self, elsewhere))

    def meets(self, names: tuple[str, ...], incoming: Incoming, right: Answer) -> bool:
        """Count a request by its last name if it is meant; return whether it suffers."""
        if self.method not in {None, incoming.method}:
            return False
        if not any(fnmatch.fnmatchcase(name, self.match) for name in names):
            return False
        # What is to go wrong must go right without it.
        if self.fault is HubFault.RANGE_UNASKED:
            is_possible = right.status == 200 and right.part.size > 1
        elif self.fault.startswith("range-"):
            is_possible = right.status == 206
        elif self.fault is HubFault.REDIRECT_TO_OTHER_HOST:
            is_possible = not incoming.headers.get("host", "").startswith(OTHER_HOST)
        else:
            is_possible = right.status in {200, 206, 302}
        if not is_possible:
            return False
        self._seen[names[-1]] += 1
        late = self._seen[names[-1]] - self.nth
        return late >= 0 and (self.times is None or late < self.times)


_PADDING = 2**20  # more than any client takes for a line of a header
_BOMB = 2**30
_BLOCK = 2**16
_UNTIL_CLOSE = ("Connection", "close")
_CHUNKED = ("Transfer-Encoding", "chunked")


class Case(NamedTuple):
    """An answer that is to be harmed."""

    answer: Answer  # the right one
    incoming: Incoming
    rule: Rule
    elsewhere: str  # the same place under the name of another host

    @property
    def part(self) -> Part:
        return self.answer.part

    @property
    def at(self) -> int:
        """Bytes of the body before the harm is done."""
        return self.part.size // 2 if self.rule.at is None else self.rule.at


Harm = Callable[[Case], Wire]


def _send(case: Case, body: Iterable[Piece], *headers: Header, end: End = End.CLOSE) -> Wire:
    """Send what is right but for the body, its length and what follows."""
    return Wire(case.answer.status, (*case.answer.headers, *headers), body, end)


def _length(size: int) -> Header:
    return "Content-Length", str(size)


def _refuse(status: int, retry_after: Callable[[], str] = str) -> Harm:  # by default none
    def harm(case: Case) -> Wire:
        value = case.rule.retry_after or retry_after()  # asked late: it may be a date
        headers = [("Retry-After", value)] if value else []
        return answer(status, b"A fault, as the test asked for.\n", *headers).wire()

    return harm


def _redirect(location: Callable[[Case], str]) -> Harm:
    return lambda case: answer(302, b"", ("Location", location(case))).wire()


def _half(end: End) -> Harm:
    """Send the right header, and less of the body than it says."""
    return lambda case: _send(case, [case.part.until(case.at)], _length(case.part.size), end=end)


def _lengths(*values: Callable[[int], object]) -> Harm:
    """Send the whole body, and lengths that are made of its size."""

    def harm(case: Case) -> Wire:
        headers = [("Content-Length", str(value(case.part.size))) for value in values]
        return _send(case, [case.part], *headers)

    return harm


def _chunked_bad_size(case: Case) -> Wire:
    first, rest = case.part.until(case.at), case.part.beyond(case.at)
    chunks: list[Piece] = [b"%x\r\n" % first.size, first, b"\r\nzz\r\n", rest, b"\r\n0\r\n\r\n"]
    return _send(case, chunks if first.size else chunks[2:], _CHUNKED)


def _flipped(case: Case) -> Wire:
    part = case.part
    before = part.until(min(case.at, max(0, part.size - 1)))
    wrong = bytes(byte ^ 1 for byte in part.content.read(before.stop, before.stop + 1))
    after = part.beyond(before.size + 1)
    return _send(case, [before, wrong, after], _length(part.size), end=End.KEEP)


def _html_page(case: Case) -> Wire:
    size = case.part.size
    start, stop = b"<!DOCTYPE html><title>Sign in</title><p>Sign in to go on.<!--", b"--></p>\n"
    page = itertools.chain([start], _repeated(b" ", size - len(start) - len(stop)), [stop])
    if size < len(start) + len(stop):
        page = itertools.chain([start[:size]])
    headers = _without(case.answer.headers, "Content-Type")
    return Wire(case.answer.status, (*headers, ("Content-Type", "text/html"), _length(size)), page)


def _repeated(byte: bytes, times: int) -> Iterator[bytes]:
    for start in range(0, times, _BLOCK):
        yield byte * min(_BLOCK, times - start)


def _packed_zeros() -> Iterator[bytes]:
    packer = zlib.compressobj(level=1, wbits=31)  # 31: with a gzip header, says zlib's manual
    for zeros in _repeated(b"\0", _BOMB):
        yield packer.compress(zeros)
    yield packer.flush()


def _wrong_range(case: Case) -> Wire:
    part, fault = case.part, case.rule.fault
    content, total = part.content, part.content.size
    headers = _without(case.answer.headers, "Content-Range")
    if fault is HubFault.RANGE_IGNORED:
        return Wire(200, (*headers, _length(total)), [Part(content, 0, total)])
    if fault is HubFault.RANGE_UNASKED:
        part = part.until(case.at)
    elif fault is HubFault.RANGE_WRONG_START:
        start = 0 if part.start else min(1, total - 1)
        part = Part(content, start, max(start + 1, part.stop))
    elif fault is HubFault.RANGE_WRONG_TOTAL:
        total += 1
    span = ("Content-Range", f"bytes {part.start}-{part.stop - 1}/{total}")
    headers = (*headers, span, _length(part.size))
    body: Iterable[Piece] = [part]
    if fault is HubFault.RANGE_OTHER_ETAG:
        headers = (*_without(headers, "ETag"), ("ETag", f'"{content.sha256[::-1]}"'))
        inverted = bytes(reversed(range(256)))
        body = (block.translate(inverted) for block in content.blocks(part.start, part.stop))
    return Wire(206, headers, body)


def _with_header(name: str, value: str) -> Harm:
    def harm(case: Case) -> Wire:
        headers = (*_without(case.answer.headers, name), (name, value))
        return Wire(case.answer.status, (*headers, _length(case.part.size)), [case.part])

    return harm


def _without(headers: tuple[Header, ...], name: str) -> tuple[Header, ...]:
    return tuple(header for header in headers if header[0] != name)


def _drip(case: Case) -> Wire:
    pause = 0.2 if case.rule.interval is None else float(case.rule.interval)
    part = case.part
    drops = (part.content.read(at, at + 1) for at in range(part.start, part.stop))
    pieces = (piece for drop in drops for piece in (drop, pause))
    return _send(case, pieces, _length(part.size), end=End.KEEP)


HARMS: dict[HubFault, Harm] = {
    **{HubFault(f"status-{status}"): _refuse(status) for status in (401, 403, 404, 500)},
    **{HubFault(f"status-{status}"): _refuse(status, lambda: "0") for status in (429, 503)},
    HubFault.RETRY_AFTER_ABSURD: _refuse(503, lambda: str(10**20)),
    HubFault.RETRY_AFTER_DATE: _refuse(503, lambda: formatdate(time.time() + 1, usegmt=True)),
    HubFault.RETRY_AFTER_GARBAGE: _refuse(503, lambda: "soon"),
    HubFault.CLOSED_BEFORE_HEADER: lambda _: Wire(None, end=End.CLOSE),
    HubFault.RESET_BEFORE_HEADER: lambda _: Wire(None, end=End.RESET),
    HubFault.RESET_IN_BODY: _half(End.RESET),
    HubFault.NOT_HTTP: lambda _: Wire(None, (), [b"SSH-2.0-OpenSSH_9.6\r\n"], End.CLOSE),
    HubFault.TRUNCATED: _half(End.CLOSE),
    HubFault.TRUNCATED_WITHOUT_LENGTH: lambda case: _send(
        case, [case.part.until(case.at)], _UNTIL_CLOSE
    ),
    HubFault.CHUNKED_TRUNCATED: lambda case: _send(
        case, [b"%x\r\n" % case.part.size, case.part.until(case.at)], _CHUNKED
    ),
    HubFault.CHUNKED_BAD_SIZE: _chunked_bad_size,
    HubFault.LENGTH_TOO_SMALL: _lengths(lambda size: size // 2),
    HubFault.LENGTH_TOO_LARGE: _lengths(lambda size: size + 1),
    HubFault.LENGTH_NEGATIVE: _lengths(lambda _: -1),
    HubFault.LENGTH_TWICE: _lengths(lambda size: size // 2, lambda size: size),
    HubFault.LENGTH_NOT_A_NUMBER: _lengths(lambda _: "many"),
    HubFault.FLIPPED: _flipped,
    HubFault.HTML_PAGE: _html_page,
    HubFault.EMPTY_BODY: lambda case: Wire(
        200, (*_without(case.answer.headers, "Content-Range"), _length(0))
    ),
    HubFault.ENDLESS_BODY: lambda case: _send(
        case, itertools.chain([case.part], itertools.repeat(bytes(_BLOCK))), _UNTIL_CLOSE
    ),
    HubFault.GZIP_LIE: _with_header("Content-Encoding", "gzip"),
    HubFault.GZIP_BOMB: lambda case: _send(
        case, _packed_zeros(), ("Content-Encoding", "gzip"), _UNTIL_CLOSE
    ),
    **{fault: _wrong_range for fault in HubFault if fault.startswith("range-")},
    HubFault.RANGE_REFUSED: lambda case: answer(
        416, b"", ("Content-Range", f"bytes */{case.part.content.size}")
    ).wire(),
    HubFault.REDIRECT_LOOP: _redirect(lambda case: case.incoming.target),
    HubFault.REDIRECT_TO_FILE: _redirect(lambda _: "file:///etc/passwd"),
    HubFault.REDIRECT_TO_OTHER_HOST: _redirect(lambda case: case.elsewhere),
    HubFault.REDIRECT_WITHOUT_LOCATION: lambda _: answer(302).wire(),
    HubFault.HUGE_HEADER: _with_header("X-Padding", "x" * _PADDING),
    HubFault.UNSAFE_FILE_NAME: _with_header(
        "Content-Disposition", 'attachment; filename="../../x"'
    ),
    HubFault.STALL_BEFORE_HEADER: lambda _: Wire(None, end=End.STALL),
    HubFault.STALL_AFTER_HEADER: lambda case: _send(
        case, [], _length(case.part.size), end=End.STALL
    ),
    HubFault.STALL_IN_BODY: _half(End.STALL),
    HubFault.DRIP: _drip,
}
