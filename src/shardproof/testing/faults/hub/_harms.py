"""What each fault sends instead of the right answer."""

import itertools
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from typing import NamedTuple

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
from shardproof.testing.faults.hub._faults import HubFault, Rule

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
        """The body of the right answer."""
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
