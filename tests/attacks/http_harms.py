"""What a server can do wrong: each harm makes bytes of a right answer wrong ones."""

import dataclasses
import functools
import gzip
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from tests.attacks.raw_server import Request, Step

SECRET = "s3cr3t"
"""What nobody may be told: it is in what the client sends, and in some answers."""

DATA = random.Random("shard").randbytes(40_000)
OTHER = random.Random("the same name, later").randbytes(40_000)
HALF = 20_000
TAG, OTHER_TAG = '"v1"', '"v2"'
PAGE = b"<!DOCTYPE html><title>Sign in</title>" + b" " * 500

Known = Literal["digest", "size", "asked", "nothing"]
"""What the client knows of the shard: its digest; its size; what the server says when asked, which
is not before it gives the file; nothing."""

UNSEEN: frozenset[Known] = frozenset({"size", "asked", "nothing"})
SHORT: frozenset[Known] = frozenset({"nothing"})
CONSISTENT: frozenset[Known] = frozenset({"asked", "nothing"})
"""Whoever begins asks for the file at once: what an answer says of its own length is believed."""


@dataclasses.dataclass
class Answer:
    status: str
    headers: list[tuple[str, str]]
    body: bytes
    version: str = "HTTP/1.1"

    def put(self, name: str, value: str | None) -> "Answer":
        kept = [each for each in self.headers if each[0].lower() != name.lower()]
        self.headers = kept if value is None else [*kept, (name, value)]
        return self

    def sized(self, body: bytes) -> "Answer":
        self.body = body
        return self.put("Content-Length", str(len(body)))

    def chunked(self, body: bytes) -> "Answer":
        self.body = body
        return self.put("Content-Length", None).put("Transfer-Encoding", "chunked")

    def head(self) -> bytes:
        lines = [f"{self.version} {self.status}", *(f"{n}: {v}" for n, v in self.headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


def right_answer(request: Request, data: bytes = DATA, tag: str = TAG) -> Answer:
    start = request.start
    if request.headers.get("if-range", tag) != tag or start is None or start >= len(data):
        start = None
    body = data[start or 0 :]
    headers = [
        ("Content-Type", "application/octet-stream"),
        ("ETag", tag),
        ("Accept-Ranges", "bytes"),
        ("Content-Length", str(len(body))),
    ]
    if start is None:
        return Answer("200 OK", headers, body)
    span = f"bytes {start}-{len(data) - 1}/{len(data)}"
    return Answer("206 Partial Content", [*headers, ("Content-Range", span)], body)


def sent(answer: Answer, *, keep: bool = False) -> Iterator[Step]:
    yield answer.head() + answer.body
    if keep:
        yield "keep"


Send = Callable[[Request, Answer], Iterable[Step]]


@dataclasses.dataclass(frozen=True)
class Harm:
    send: Send
    unseen: frozenset[Known] = frozenset()  # for whom the wrong bytes look like right ones
    heads: bool = False  # whether it does so to HEAD as well
    whole: bytes | None = None  # another file that it may give as a whole


HARMS: dict[str, Harm] = {}


def _add(name: str, send: Send, unseen: frozenset[Known] = frozenset(), **more: object) -> None:
    assert name not in HARMS, name
    HARMS[name] = Harm(send, unseen, **more)


def _raw(name: str, data: bytes, *ends: Step, heads: bool = False) -> None:
    _add(name, lambda request, answer: [data, *ends], heads=heads)


def _changed(name, change, unseen=frozenset(), heads=False) -> None:
    def send(request: Request, answer: Answer) -> Iterator[Step]:
        change(answer)
        yield answer.head() + (b"" if request.method == "HEAD" else answer.body)

    _add(name, send, unseen, heads=heads)


def _header(name: str, value: str | None, unseen: frozenset[Known] = frozenset()) -> None:
    _changed(f"{name}: {value!r:.40}", lambda a: a.put(name, value), unseen)


def _twice(name: str, *values: str, unseen: frozenset[Known] = frozenset()) -> None:
    pairs = [(name, value) for value in values]
    _changed(f"{name} {values!r:.40}", lambda a: a.put(name, None).headers.extend(pairs), unseen)


def _later(value: str) -> None:
    status, name = "503 Later", f"Retry-After: {value!r:.40}"
    _changed(name, lambda a: setattr(a.put("Retry-After", value), "status", status))


def _body(name: str, change: Callable[[bytes], bytes], unseen: frozenset[Known]) -> None:
    _changed(name, lambda a: a.sized(change(a.body)), unseen)


def _chunked(name, chunks, unseen=frozenset()) -> None:
    _changed(f"chunks: {name}", lambda a: a.chunked(chunks(a.body)), unseen)


def _range(name: str, send: Send, unseen: frozenset[Known] = frozenset()) -> None:
    """Ranges that lie: of a fresh request nothing is wrong."""
    _add(f"range: {name}", lambda r, a: sent(a) if r.start is None else send(r, a), unseen)


def _redirect(location: str) -> None:
    head = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    _raw(f"302 to {location[:40]!r}", head.encode("latin-1"), heads=True)


def _head_only(name: str, header: str, value: str | None) -> None:
    def send(request: Request, answer: Answer) -> Iterator[Step]:
        is_head = request.method == "HEAD"
        return iter([answer.put(header, value).head()]) if is_head else sent(answer)

    _add(f"HEAD: {name}", send, heads=True)


for _status in (
    *("100 Continue", "101 Switching Protocols", "102 Processing", "199 X", "201 Created"),
    *("202 Accepted", "203 Other", "204 No Content", "205 Reset Content", "207 Multi-Status"),
    *("226 IM Used", "300 Choices", "301 Moved", "302 Found", "303 See Other", "304 Not Modified"),
    *("305 Use Proxy", "307 Temporary", "308 Permanent", "400 Bad", "401 Who", "402 Pay"),
    *("403 No", "404 Not Found", "405 No", "407 Proxy", "408 Late", "409 Conflict", "410 Gone"),
    *("412 No", "416 No Range", "418 Teapot", "425 Early", "429 Slow Down", "451 Law", "499 X"),
    *("500 Oh", "502 Bad Gateway", "503 Later", "504 Late", "507 Full", "511 Sign In", "599 X"),
    *("000 X", "999 X", "20 OK", "2000 OK", "-200 OK", "2x0 OK", "\xb2\xb0\xb0 OK", ""),
):
    _changed(f"status {_status!r}", lambda a, s=_status: setattr(a, "status", s), heads=True)
for _reason in ("\x1b]0;title\x07\x1b[31m", "x" * 60_000, "\xe9\xff", "\t", "a\x00b", "<script>"):
    _changed(f"reason {_reason[:9]!r}", lambda a, s=_reason: setattr(a, "status", f"503 {s}"))
for _version in ("HTTP/0.9", "HTTP/1.0", "HTTP/2", "HTTP/9.9", "HTTP/1.1.1", "http/1.1", "ICY"):
    _changed(f"version {_version}", lambda a, v=_version: setattr(a, "version", v))

ODD = [
    *("", "x", "-1", "0", "9" * 30, "9" * 5000, "\xff\xfe", "\x1b[31m", "\x00", "x" * 60_000),
    *("+40000", "0x9c40", "4e4", "40000.0", "\xb2", "40000, 1", "1e9", "nan", "inf", str(10**17)),
    *("gzip", "deflate", "br", "zstd", "identity, gzip", "chunked, gzip", "\x0bchunked", "close"),
    *("bytes", "none", "bytes */*", "bytes */1", "bytes 0-0/1", "bytes=0-", "bytes 5-1/40000"),
    *("bytes -1-5/9", "items 0-9/9", "bytes 20000-39999/1", "bytes 20000-39999/*"),
    *("bytes 19999-39998/40000", f"bytes 0-{'9' * 400}/*"),
    *('"', '""', "W/", 'W/"v1"', "v1", '"\x00"', '"' + "x" * 70_000 + '"', "a, b", "<>", "//"),
    *(
        "text/html",
        "TEXT/HTML; charset=utf-8",
        "Application/XHTML+XML;q",
        "text/plain; charset=\xff",
    ),
    *("http://[::1", "http://127.0.0.1:99999/", "http://xn--\xff/", "file:///etc/passwd"),
    *("<x>; rel=next", '<http://[::1>; rel="next"', '</api>; rel="next"', "<;rel=next;,<>"),
    *("<http://xn--a/>;rel=next", '<http://example.invalid/>; rel="next"'),
    *("Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 99999999999999999999 Jan 2020 00:00:00 GMT"),
    *("Fri, 31 Dec 9999 23:59:59 -9999", "Mon, 01 Jan 0000 00:00:00 GMT", "Mon, 1 Jan 2020"),
    *("a=b; domain=.127.0.0.1; expires=99999999999999999", 'attachment; filename="../../x"'),
]
NAMES = ["Content-Length", "ETag", "Content-Encoding", "Transfer-Encoding", "Content-Range"]
NAMES += ["Content-Type"]


for _value in ODD:
    _later(_value)
    for _name in NAMES:
        _header(_name, _value)
for _name in ("Content-Length", "ETag", "Content-Encoding"):
    _header(_name, None)
_header("Accept-Ranges", "none")
_header("Connection", "upgrade")
# The request for the bytes is the one that asks for the size.
_header("Content-Length", "20000", CONSISTENT)
_header("Content-Length", "1", CONSISTENT)
_header("Content-Length", "40001")
_header("ETag", OTHER_TAG, UNSEEN)


_twice("Content-Length", "40000", "40000")
_twice("Content-Length", "20000", "40000", unseen=SHORT)
_twice("Content-Length", "40000", "20000", unseen=SHORT)
_twice("ETag", TAG, OTHER_TAG)
_twice("Content-Range", "bytes 20000-39999/40000", "bytes 0-39999/40000")
_twice("Content-Encoding", "identity", "gzip")

for _name, _line in {
    "a NUL in a header": b"X-A: a\0b\r\n",
    "a NUL in a name": b"X\0A: a\r\n",
    "an escape in a header": b"X-A: \x1b]0;title\x07\r\n",
    "a folded header": b"X-A: a\r\n b\r\n",
    "a folded length": b"Content-Length:\r\n 40000\r\n",
    "a space before the colon": b"Content-Length : 40000\r\n",
    "a header without a colon": b"hello\r\n",
    "a header without a name": b": a\r\n",
    "a bare CR": b"X-A: a\rb\r\n",
    "a bare LF": b"X-A: a\nX-B: b\r\n",
    "bytes beyond latin-1": b"X-A: \xff\xfe\x80\r\n",
    "a header of 80 KiB": b"X-A: " + b"x" * 80 * 1024 + b"\r\n",
    "10 000 headers": b"X-A: a\r\n" * 10_000,
    "length and chunks": b"Transfer-Encoding: chunked\r\n",
    "chunks, in capitals": b"TRANSFER-ENCODING: CHUNKED\r\n",
}.items():
    _add(_name, lambda _, a, line=_line: [a.head()[:-2] + line + b"\r\n" + a.body])

_raw("nothing", b"")
_raw("a reset", b"", "reset")
_raw("silence", b"", "stall", heads=True)
_raw("an SSH server", b"SSH-2.0-OpenSSH_9.6\r\n", heads=True)
_raw("a TLS alert", b"\x15\x03\x03\x00\x02\x02\x28", heads=True)
_raw("HTTP/2", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18), heads=True)
_raw("zeros", bytes(100_000), heads=True)
_raw("escapes", b"\x1b]0;title\x07" * 1000, heads=True)
_raw("only line ends", b"\r\n" * 10_000, "stall")
_raw("a body without a header", DATA)
_raw("HTTP/0.9", b"<html>" + DATA)

_body("a bit flipped at the beginning", lambda b: bytes([b[0] ^ 1]) + b[1:], UNSEEN)
_body("a bit flipped at the end", lambda b: b[:-1] + bytes([b[-1] ^ 128]), UNSEEN)
_body("zeros instead", lambda b: bytes(len(b)), UNSEEN)
_body("another file of the same size", lambda b: OTHER[-len(b) :], UNSEEN)
_body("an empty body", lambda b: b"", frozenset())
_body("a byte too few", lambda b: b[:-1], CONSISTENT)
_body("a byte too many", lambda b: b + b"x", CONSISTENT)
_body("twice the file", lambda b: b + b, CONSISTENT)
_body("a page as bytes", lambda b: PAGE, frozenset())
_body("a page as bytes, of the same size", lambda b: PAGE.ljust(len(b)), UNSEEN)
_body("a page behind a mark", lambda b: b"\xef\xbb\xbf\n " + PAGE, frozenset())
_body("an error as JSON", lambda b: b'{"error": "sign in"}', CONSISTENT)
_body("compressed without a word", gzip.compress, CONSISTENT)

for _cut in (0, 1, 100, 19_999):
    _add(f"cut off after {_cut}", lambda _, a, n=_cut: [a.head() + a.body[:n]])
    _add(f"reset after {_cut}", lambda _, a, n=_cut: [a.head() + a.body[:n], "reset"])
    _add(f"stalled after {_cut}", lambda _, a, n=_cut: [a.head() + a.body[:n], "stall"])
    _add(
        f"without a length, cut off after {_cut}",
        lambda _, a, n=_cut: [a.put("Content-Length", None).head() + a.body[:n]],
    )
    _add(
        f"every second time cut off after {_cut}",
        lambda r, a, n=_cut: [a.head() + (a.body if r.nth % 2 else a.body[:n])],
    )


def _drops(before: bytes, data: bytes) -> Iterator[Step]:
    yield before
    for at in range(200):
        yield data[at : at + 1]
        yield 0.05


def _flood(before: bytes, block: bytes, n: int, after: bytes = b"") -> Iterator[Step]:
    yield before
    yield from itertools.repeat(block, n)
    yield after


def _packed_zeros(n_mib: int) -> bytes:
    packing = zlib.compressobj(level=1, wbits=31)
    return b"".join([*(packing.compress(bytes(2**20)) for _ in range(n_mib)), packing.flush()])


def _chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%s\r\n%s\r\n" % (len(data), extension, data)


_NEXT = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad"
_GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
_HINT = b"HTTP/1.1 103 Early Hints\r\nContent-Length: 3\r\n\r\n"
_LINE = b"X-A: " + b"x" * 65_000 + b"\r\n"
_MIB = b"100000\r\n" + bytes(2**20) + b"\r\n"
_XS = b"x" * 65_536
_add("garbage behind the body", lambda _, a: [a.head() + a.body + _NEXT * 3, "keep"])
_add("a drop at a time", lambda _, a: _drops(a.head(), a.body))
_add("a header drop by drop", lambda _, a: _drops(b"", a.head()), heads=True)
_add("100 MB of headers", lambda _, a: _flood(a.head()[:-2], _LINE, 1600), heads=True)
_add(
    "a header of 10 MiB",
    lambda _, a: _flood(a.head()[:-2] + b"X-A: ", _XS, 160, b"\r\n\r\n" + a.body),
    heads=True,
)
_add(
    "25 MB of 100 Continue",
    lambda _, a: _flood(b"", _GO_ON * 50, 20_000, a.head() + a.body),
    heads=True,
)
_add("early hints", lambda _, a: [_HINT * 3 + a.head() + a.body], heads=True)
_add("100 MB of a reason", lambda _, a: _flood(b"HTTP/1.1 200 ", _XS, 1600), heads=True)
_add(
    "an endless body",
    lambda _, a: _flood(a.put("Content-Length", None).head() + a.body, bytes(65_536), 1000),
)
_add(
    "an endless body in chunks",
    lambda _, a: _flood(a.chunked(_chunk(a.body)).head() + a.body, _MIB, 100),
)
_add(
    "a bomb of gzip", lambda _, a: sent(a.put("Content-Encoding", "gzip").sized(_packed_zeros(64)))
)

_END = b"0\r\n\r\n"
_chunked("right", lambda b: _chunk(b) + _END)
_chunked("a byte each", lambda b: b"".join(_chunk(b[at : at + 1]) for at in range(len(b))) + _END)
_chunked("no end", _chunk)
_chunked("the end too early", lambda b: _chunk(b[:500]) + _END, SHORT)
_chunked("nothing but the end", lambda b: _END)
_chunked("cut in a chunk", lambda b: _chunk(b)[:9000])
_chunked("cut in a size", lambda b: _chunk(b[:500]) + b"1")
_chunked("no size", lambda b: b"\r\n" + b)
_chunked("a size that is none", lambda b: b"zz\r\n" + b)
_chunked("a negative size", lambda b: b"-1\r\n" + b)
_chunked("a size with a sign", lambda b: b"+9c40\r\n" + b)
_chunked("a size of 0x", lambda b: b"0x9c40\r\n" + b)
_chunked("a size of many digits", lambda b: b"9" * 5000 + b"\r\n" + b)
_chunked("a size of 2**62", lambda b: b"4000000000000000\r\n" + b)
_chunked("a size that is too small", lambda b: b"1f4\r\n" + b + b"\r\n" + _END)
_chunked("an extension", lambda b: _chunk(b, b';a="b;c"') + _END)
_chunked("an extension of 100 KB", lambda b: _chunk(b, b";" + b"x" * 100_000) + _END)
_chunked("an extension with an escape", lambda b: _chunk(b, b";\x1b]0;x\x07") + _END)
_chunked("trailers", lambda b: _chunk(b) + b'0\r\nETag: "v2"\r\nContent-Length: 1\r\n\r\n')
_chunked("trailers without end", lambda b: _chunk(b) + b"0\r\n" + b"X-A: a\r\n" * 20_000)
_chunked("a body behind the end", lambda b: _chunk(b) + _END + b[:99])
_chunked("line ends of LF", lambda b: _chunk(b).replace(b"\r\n", b"\n", 1) + _END)


def _span(start: int, stop: int, size: int, data: bytes = DATA, tag: str | None = TAG) -> Send:
    def send(request: Request, answer: Answer) -> Iterator[Step]:
        answer.sized(data[start:stop]).put("ETag", tag)
        return sent(answer.put("Content-Range", f"bytes {start}-{stop - 1}/{size}"))

    return send


_range("of the beginning", _span(0, 20_000, 40_000))
_range("of all", _span(0, 40_000, 40_000))
_range("one byte off", _span(HALF - 1, 39_999, 40_000))
_range("of less", _span(HALF, 30_000, 40_000))
_range("of another size", _span(HALF, 40_000, 50_000), SHORT)
_range("of another version", _span(HALF, 40_000, 40_000, OTHER, OTHER_TAG))
_range("of another version without a tag", _span(HALF, 40_000, 40_000, OTHER, None))
_range("of another version with the same tag", _span(HALF, 40_000, 40_000, OTHER), UNSEEN)

_range(
    "the wrong bytes under the right numbers",
    lambda _, a: sent(dataclasses.replace(a, body=DATA[: len(a.body)])),
    UNSEEN,
)
_unasked = _span(0, 20_000, 40_000)
_add("206 that nobody asked for", lambda r, a: _unasked(r, dataclasses.replace(a, status="206 P")))


def _refused(size: str) -> Send:
    span = f"bytes */{size}"
    head = f"HTTP/1.1 416 No\r\nContent-Range: {span}\r\nContent-Length: 0\r\n\r\n".encode()
    return lambda *_: [head]


def _whole(request: Request) -> Answer:
    return right_answer(request._replace(start=None))


def _multipart(request: Request, answer: Answer) -> Iterator[Step]:
    part = b"--x\r\nContent-Range: bytes 20000-39999/40000\r\n\r\n" + DATA[HALF:] + b"\r\n--x--\r\n"
    answer.put("Content-Range", None).put("Content-Type", "multipart/byteranges; boundary=x")
    return sent(answer.sized(part))


_range("ignored", lambda r, _: sent(_whole(r)))
_range("ignored, and no tag", lambda r, _: sent(_whole(r).put("ETag", None)))
_range("many parts", _multipart)


for _name, _n in {"more": 30, "less": -30}.items():
    _range(f"{_name} than it says", lambda _, a, n=_n: sent(a.sized(OTHER[: len(a.body) + n])))
    _range(
        f"{_name} than it says, in chunks",
        lambda _, a, n=_n: sent(a.chunked(_chunk(OTHER[: len(a.body) + n]) + _END)),
    )
for _size in ("40000", "20000", "0", "-1", "*", "9" * 400, "\x1b"):
    _range(f"416 and a size of {_size[:9]!r}", _refused(_size))


def _new_version(request: Request, _: Answer) -> Iterator[Step]:
    return sent(right_answer(request, OTHER, OTHER_TAG))


def _new_in_between(_: Request, answer: Answer) -> Iterator[Step]:
    """The header is of one file, the bytes from the middle on of the other."""
    half = len(answer.body) // 2
    answer.body = answer.body[:half] + OTHER[-half:]
    return sent(answer)


_add("another file by now", _new_version, whole=OTHER)
_add(
    "a shorter file by now",
    lambda r, _: sent(right_answer(r, OTHER[:30_000], OTHER_TAG)),
    whole=OTHER[:30_000],
    heads=True,
)
_add(
    "another file while it is cut off",
    lambda r, a: _new_version(r, a) if r.nth % 2 else [a.head() + a.body[:9000]],
    whole=OTHER,
)
_add("another file midway", _new_in_between, UNSEEN)

for _location in (
    *("file:///etc/passwd", "ftp://127.0.0.1/x", "data:text/plain,x", "gopher://x", "javascript:1"),
    *("http://[::1", "http://[::1]:99999/", "http://127.0.0.1:99999/", "http://127.0.0.1:-1/"),
    *("http://xn--\xff/", "http://xn--a/", "http://xn--zzzzzzzzzzzz/", "http://\xe9/"),
    *("http://a..b/", "http:///x", "http://", "//", "", "?", "#", "\x00", "\x1b]0;x\x07"),
    *("http://a b/", "http://%/", "http://" + "a" * 300 + "/", "x" * 60_000, "http://\x7f/"),
    *("http://127.0.0.1:1/", "https://127.0.0.1:1/", "http://u:p@127.0.0.1:1/"),
    *("http://0x7f000001:1/", "http://[fe80::1%25lo]/", "\\\\h\\x", "http://" + "." * 200),
    *("mailto:x", "about:blank", "unix:///run/x"),
):
    _redirect(_location)


def _to(location: str, *headers: str, status: str = "302 F") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Location: {location}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


_EMPTY = "Content-Length: 0"


def _to_a_stranger(request: Request, answer: Answer) -> Iterator[Step]:
    """Another name of the same machine, and so of another server; it has the file."""
    host = request.headers["host"]
    if host.startswith("localhost"):
        yield from sent(answer)
    other = f"http://localhost:{host.rpartition(':')[2]}/{request.case}/x.bin"
    yield _to(other, _EMPTY, status="307 T")


def _to_a_stranger_and_back(request: Request, answer: Answer) -> Iterator[Step]:
    host = request.headers["host"]
    name = "127.0.0.1" if host.startswith("localhost") else "localhost"
    if name == "localhost" and request.nth % 2:
        yield from sent(answer)
    yield _to(f"http://{name}:{host.rpartition(':')[2]}/{request.case}/x.bin", _EMPTY)


def _then_right(name: str, send: Callable[[str], Iterable[Step]]) -> None:
    """It leads to where the right answer is."""

    def led(request: Request, answer: Answer) -> Iterable[Step]:
        there = f"/{request.case}/there/x.bin"
        return sent(answer) if "/there/" in request.target else send(there)

    _add(name, led)


@functools.cache
def _much_packed() -> bytes:
    """320 MiB of zeros: more than a client may take."""
    return _packed_zeros(320)


def _bomb_on_the_way(there: str) -> Iterator[Step]:
    yield _to(there, "Content-Encoding: gzip", f"Content-Length: {len(_much_packed())}")
    yield _much_packed()


_then_right("a bomb of gzip on the way", _bomb_on_the_way)
_then_right(
    "an endless body on the way",
    lambda there: _flood(_to(there, "Transfer-Encoding: chunked"), _MIB, 320),
)
_then_right(
    "a redirect to a signed address",
    lambda there: [_to(f"{there}?signature={SECRET}", _EMPTY), "keep"],
)
_add("a redirect to itself", lambda r, _: [_to(f"/{r.case}", _EMPTY), "keep"], heads=True)
_add("a redirect to a stranger", _to_a_stranger)
_add("a redirect to a stranger and back", _to_a_stranger_and_back)


_head_only("a smaller size", "Content-Length", "30000")
_head_only("a larger size", "Content-Length", "50000")
_head_only("no size", "Content-Length", None)
_head_only("a size of 0", "Content-Length", "0")
_head_only("another tag", "ETag", OTHER_TAG)
_head_only("a size of 10**17", "Content-Length", str(10**17))
_head_only("a huge size and ranges", "Content-Length", str(2**33))


_add("HEAD: a body", lambda _, a: sent(a, keep=True), heads=True)

_WIDEST = len(right_answer(Request("GET", "", HALF, {}, 0)).head())
for _at in range(_WIDEST):
    _add(f"the end after byte {_at} of the header", lambda _, a, at=_at: [a.head()[:at]])
