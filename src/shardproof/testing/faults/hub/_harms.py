"""What each fault sends instead of the right answer."""

import dataclasses
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
    Pause,
    Piece,
    Wire,
    answer,
)
from shardproof.testing.faults.hub._faults import Fault, Rule

__all__ = ["Case", "harmed"]

_PADDING = 2**20  # more than any client takes for a line of a header
_BOMB = 2**30
_BLOCK = 2**16
_UNTIL_CLOSE = ("Connection", "close")
_CHUNKED = ("Transfer-Encoding", "chunked")


class Case(NamedTuple):
    """An answer that is to be harmed.

    Attributes:
        answer: The right one.
        incoming: What it answers.
        rule: What is to go wrong.
        elsewhere: The same place under the name of another host.
    """

    answer: Answer
    incoming: Incoming
    rule: Rule
    elsewhere: str

    @property
    def part(self) -> Part:
        """The body of the right answer."""
        return self.answer.part

    @property
    def at(self) -> int:
        """Bytes of the body before the harm is done."""
        return self.part.size // 2 if self.rule.at is None else self.rule.at


def harmed(case: Case) -> Wire:
    """Return what the fault makes of an answer."""
    return _HARMS[case.rule.fault](case)


Harm = Callable[[Case], Wire]


def _send(case: Case, body: Iterable[Piece], *headers: Header, end: End = End.CLOSE) -> Wire:
    """What is right but for the body, its length and what follows."""
    return Wire(case.answer.status, (*case.answer.headers, *headers), body, end)


def _length(size: int) -> Header:
    return "Content-Length", str(size)


def _refuse(status: int, retry_after: Callable[[], str] | None = None) -> Harm:
    def harm(case: Case) -> Wire:
        value = case.rule.retry_after or (retry_after() if retry_after else None)
        headers = [("Retry-After", value)] if value else []
        return answer(status, b"A fault, as the test asked for.\n", *headers).wire()

    return harm


def _in_a_second() -> str:
    return formatdate(time.time() + 1, usegmt=True)


def _redirect(location: Callable[[Case], str]) -> Harm:
    return lambda case: answer(302, b"", ("Location", location(case))).wire()


def _half(end: End) -> Harm:
    """The right header, and less of the body than it says."""
    return lambda case: _send(case, [case.part.until(case.at)], _length(case.part.size), end=end)


def _lengths(*values: Callable[[int], object]) -> Harm:
    """The whole body, and lengths that are made of its size."""

    def harm(case: Case) -> Wire:
        headers = [("Content-Length", str(value(case.part.size))) for value in values]
        return _send(case, [case.part], *headers)

    return harm


def _truncated_without_length(case: Case) -> Wire:
    return _send(case, [case.part.until(case.at)], _UNTIL_CLOSE)


def _chunked_cut(case: Case) -> Wire:
    return _send(case, [b"%x\r\n" % case.part.size, case.part.until(case.at)], _CHUNKED)


def _chunked_bad_size(case: Case) -> Wire:
    first, rest = case.part.until(case.at), case.part.beyond(case.at)
    chunks: list[Piece] = [b"%x\r\n" % first.size, first, b"\r\nzz\r\n", rest, b"\r\n0\r\n\r\n"]
    return _send(case, chunks if first.size else chunks[2:], _CHUNKED)


def _bit_flip(case: Case) -> Wire:
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


def _endless_body(case: Case) -> Wire:
    zeros = itertools.repeat(bytes(_BLOCK))
    return _send(case, itertools.chain([case.part], zeros), _UNTIL_CLOSE)


def _gzip_bomb(case: Case) -> Wire:
    return _send(case, _packed_zeros(), ("Content-Encoding", "gzip"), _UNTIL_CLOSE)


def _packed_zeros() -> Iterator[bytes]:
    packer = zlib.compressobj(level=1, wbits=31)  # 31: with a gzip header, says zlib's manual
    for zeros in _repeated(b"\0", _BOMB):
        yield packer.compress(zeros)
    yield packer.flush()


def _range_unasked(case: Case) -> Wire:
    return _range_answer(case, case.part.until(case.at))


def _range_wrong_start(case: Case) -> Wire:
    content = case.part.content
    start = 0 if case.part.start else min(1, content.size - 1)
    return _range_answer(case, Part(content, start, max(start + 1, case.part.stop)))


def _range_wrong_total(case: Case) -> Wire:
    return _range_answer(case, case.part, total=case.part.content.size + 1)


def _range_other_etag(case: Case) -> Wire:
    wire = _range_answer(case, case.part)
    headers = (*_without(wire.headers, "ETag"), ("ETag", f'"{case.part.content.sha256[::-1]}"'))
    return dataclasses.replace(wire, headers=headers, body=_inverted(case.part))


def _inverted(part: Part) -> Iterator[bytes]:
    table = bytes(255 - byte for byte in range(256))
    for start in range(part.start, part.stop, _BLOCK):
        yield part.content.read(start, min(start + _BLOCK, part.stop)).translate(table)


def _range_answer(case: Case, part: Part, total: int | None = None) -> Wire:
    total = part.content.size if total is None else total
    span = ("Content-Range", f"bytes {part.start}-{part.stop - 1}/{total}")
    headers = _without(case.answer.headers, "Content-Range")
    return Wire(206, (*headers, span, _length(part.size)), [part])


def _range_ignored(case: Case) -> Wire:
    content = case.part.content
    headers = _without(case.answer.headers, "Content-Range")
    return Wire(200, (*headers, _length(content.size)), [Part(content, 0, content.size)])


def _range_refused(case: Case) -> Wire:
    span = ("Content-Range", f"bytes */{case.part.content.size}")
    return answer(416, b"", span).wire()


def _with_header(name: str, value: str) -> Harm:
    def harm(case: Case) -> Wire:
        headers = (*_without(case.answer.headers, name), (name, value))
        return Wire(case.answer.status, (*headers, _length(case.part.size)), [case.part])

    return harm


def _without(headers: tuple[Header, ...], name: str) -> tuple[Header, ...]:
    return tuple(header for header in headers if header[0] != name)


def _drip(case: Case) -> Wire:
    pause = Pause(0.2 if case.rule.interval is None else case.rule.interval)
    part = case.part
    drops = (part.content.read(at, at + 1) for at in range(part.start, part.stop))
    return _send(case, _separated(drops, pause), _length(part.size), end=End.KEEP)


def _separated(drops: Iterable[bytes], pause: Pause) -> Iterator[Piece]:
    for drop in drops:
        yield drop
        yield pause


_HARMS: dict[Fault, Harm] = {
    Fault.STATUS_401: _refuse(401),
    Fault.STATUS_403: _refuse(403),
    Fault.STATUS_404: _refuse(404),
    Fault.STATUS_429: _refuse(429, lambda: "0"),
    Fault.STATUS_500: _refuse(500),
    Fault.STATUS_503: _refuse(503, lambda: "0"),
    Fault.RETRY_AFTER_ABSURD: _refuse(503, lambda: str(10**20)),
    Fault.RETRY_AFTER_DATE: _refuse(503, _in_a_second),
    Fault.RETRY_AFTER_GARBAGE: _refuse(503, lambda: "soon"),
    Fault.CLOSED_BEFORE_HEADER: lambda _: Wire(None, end=End.CLOSE),
    Fault.RESET_BEFORE_HEADER: lambda _: Wire(None, end=End.RESET),
    Fault.RESET_IN_BODY: _half(End.RESET),
    Fault.NOT_HTTP: lambda _: Wire(None, (), [b"SSH-2.0-OpenSSH_9.6\r\n"], End.CLOSE),
    Fault.TRUNCATED: _half(End.CLOSE),
    Fault.TRUNCATED_WITHOUT_LENGTH: _truncated_without_length,
    Fault.CHUNKED_CUT: _chunked_cut,
    Fault.CHUNKED_BAD_SIZE: _chunked_bad_size,
    Fault.LENGTH_TOO_SMALL: _lengths(lambda size: size // 2),
    Fault.LENGTH_TOO_LARGE: _lengths(lambda size: size + 1),
    Fault.LENGTH_NEGATIVE: _lengths(lambda _: -1),
    Fault.LENGTH_TWICE: _lengths(lambda size: size // 2, lambda size: size),
    Fault.LENGTH_NOT_A_NUMBER: _lengths(lambda _: "many"),
    Fault.BIT_FLIP: _bit_flip,
    Fault.HTML_PAGE: _html_page,
    Fault.EMPTY_BODY: lambda case: Wire(
        200, (*_without(case.answer.headers, "Content-Range"), _length(0))
    ),
    Fault.ENDLESS_BODY: _endless_body,
    Fault.GZIP_LIE: _with_header("Content-Encoding", "gzip"),
    Fault.GZIP_BOMB: _gzip_bomb,
    Fault.RANGE_UNASKED: _range_unasked,
    Fault.RANGE_WRONG_START: _range_wrong_start,
    Fault.RANGE_WRONG_TOTAL: _range_wrong_total,
    Fault.RANGE_OTHER_ETAG: _range_other_etag,
    Fault.RANGE_IGNORED: _range_ignored,
    Fault.RANGE_REFUSED: _range_refused,
    Fault.REDIRECT_LOOP: _redirect(lambda case: case.incoming.target),
    Fault.REDIRECT_TO_FILE: _redirect(lambda _: "file:///etc/passwd"),
    Fault.REDIRECT_TO_OTHER_HOST: _redirect(lambda case: case.elsewhere),
    Fault.REDIRECT_WITHOUT_LOCATION: lambda _: answer(302).wire(),
    Fault.HUGE_HEADER: _with_header("X-Padding", "x" * _PADDING),
    Fault.UNSAFE_FILE_NAME: _with_header("Content-Disposition", 'attachment; filename="../../x"'),
    Fault.STALL_BEFORE_HEADER: lambda _: Wire(None, end=End.STALL),
    Fault.STALL_AFTER_HEADER: lambda case: _send(case, [], _length(case.part.size), end=End.STALL),
    Fault.STALL_IN_BODY: _half(End.STALL),
    Fault.DRIP: _drip,
}
