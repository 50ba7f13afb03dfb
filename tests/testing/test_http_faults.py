"""Each named fault: what it sends, whom it fools, and that it ends."""

import contextlib
import email.utils
import hashlib
import http.client
import re
import socket
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from shardproof.testing.faults import Hub, HubFault, serve_hub
from tests.helpers import ROOT
from tests.helpers.hub_asking import DEADLINE, ask
from tests.helpers.hub_asking import dial as connect
from tests.helpers.waiting import until

DATA = bytes(range(200)) * 5
HALF, REST = DATA[:500], DATA[500:]
SHA256 = hashlib.sha256(DATA).hexdigest()
NOTE = b"A fault, as the test asked for.\n"
PAGE = b"<!DOCTYPE html><title>Sign in</title><p>Sign in to go on.<!--"
# The headers in which a fault may differ from the right answer; the others are always there.
TOLD = {"Connection", "Location", "Retry-After", "Transfer-Encoding"}
TOLD |= {f"Content-{name}" for name in ("Disposition", "Encoding", "Length", "Range")}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("no_proxy", "*")
    with serve_hub({"data/x.bin": DATA}) as hub:
        yield hub


class Wire(NamedTuple):
    """What a fault sends: status and headers, the bytes after them, and what follows these."""

    head: list[str]
    body: bytes
    end: str = "next request"


ALL = "Content-Length: 1000"
FROM_300 = "Content-Range: bytes 300-999/1000"

FRESH = {
    **{
        HubFault(f"status-{status}"): Wire([f"{status}", "Content-Length: 32"], NOTE)
        for status in (401, 403, 404, 500)
    },
    **{
        HubFault(fault): Wire([number, f"Retry-After: {after}", "Content-Length: 32"], NOTE)
        for fault, number, after in [
            *(("status-429", "429", 0), ("status-503", "503", 0)),
            *(("retry-after-absurd", "503", 10**20), ("retry-after-garbage", "503", "soon")),
        ]
    },
    HubFault.CLOSED_BEFORE_HEADER: Wire([], b"", "end"),
    HubFault.RESET_BEFORE_HEADER: Wire([], b"", "reset"),
    HubFault.RESET_IN_BODY: Wire(["200", ALL], HALF, "reset"),
    HubFault.NOT_HTTP: Wire([], b"SSH-2.0-OpenSSH_9.6\r\n", "end"),
    HubFault.TRUNCATED: Wire(["200", ALL], HALF, "end"),
    HubFault.TRUNCATED_WITHOUT_LENGTH: Wire(["200", "Connection: close"], HALF, "end"),
    HubFault.CHUNKED_TRUNCATED: Wire(
        ["200", "Transfer-Encoding: chunked"], b"3e8\r\n" + HALF, "end"
    ),
    HubFault.CHUNKED_BAD_SIZE: Wire(
        ["200", "Transfer-Encoding: chunked"],
        b"1f4\r\n" + HALF + b"\r\nzz\r\n" + REST + b"\r\n0\r\n\r\n",
        "end",
    ),
    HubFault.LENGTH_TOO_SMALL: Wire(["200", "Content-Length: 500"], DATA, "end"),
    HubFault.LENGTH_TOO_LARGE: Wire(["200", "Content-Length: 1001"], DATA, "end"),
    HubFault.LENGTH_NEGATIVE: Wire(["200", "Content-Length: -1"], DATA, "end"),
    HubFault.LENGTH_TWICE: Wire(["200", "Content-Length: 500", ALL], DATA, "end"),
    HubFault.LENGTH_NOT_A_NUMBER: Wire(["200", "Content-Length: many"], DATA, "end"),
    HubFault.FLIPPED: Wire(["200", ALL], HALF + b"\x65" + REST[1:]),
    HubFault.HTML_PAGE: Wire(["200", ALL], PAGE + b" " * 931 + b"--></p>\n"),
    HubFault.EMPTY_BODY: Wire(["200", "Content-Length: 0"], b""),
    HubFault.GZIP_LIE: Wire(["200", "Content-Encoding: gzip", ALL], DATA),
    HubFault.RANGE_UNASKED: Wire(
        ["206", "Content-Range: bytes 0-499/1000", "Content-Length: 500"], HALF
    ),
    HubFault.REDIRECT_LOOP: Wire(["302", "Location: /data/x.bin?a=b", "Content-Length: 0"], b""),
    HubFault.REDIRECT_TO_FILE: Wire(
        ["302", "Location: file:///etc/passwd", "Content-Length: 0"], b""
    ),
    HubFault.REDIRECT_WITHOUT_LOCATION: Wire(["302", "Content-Length: 0"], b""),
    HubFault.UNSAFE_FILE_NAME: Wire(
        ["200", 'Content-Disposition: attachment; filename="../../x"', ALL], DATA
    ),
    HubFault.STALL_BEFORE_HEADER: Wire([], b"", "silence"),
    HubFault.STALL_AFTER_HEADER: Wire(["200", ALL], b"", "silence"),
    HubFault.STALL_IN_BODY: Wire(["200", ALL], HALF, "silence"),
}
"""In answer to GET /data/x.bin?a=b."""

RESUMED = {
    HubFault.RANGE_WRONG_START: Wire(
        ["206", "Content-Range: bytes 0-999/1000", "Content-Length: 1000"], DATA
    ),
    HubFault.RANGE_WRONG_TOTAL: Wire(
        ["206", "Content-Range: bytes 300-999/1001", "Content-Length: 700"], DATA[300:]
    ),
    HubFault.RANGE_OTHER_ETAG: Wire(
        ["206", FROM_300, "Content-Length: 700"], bytes(255 - byte for byte in DATA[300:])
    ),
    HubFault.RANGE_IGNORED: Wire(["200", ALL], DATA),
    HubFault.RANGE_REFUSED: Wire(["416", "Content-Range: bytes */1000", "Content-Length: 0"], b""),
    HubFault.TRUNCATED: Wire(["206", FROM_300, "Content-Length: 700"], DATA[300:650], "end"),
    HubFault.EMPTY_BODY: Wire(["200", "Content-Length: 0"], b""),
}
"""The same with Range: bytes=300-."""


def dial(hub: Hub, *headers: str, method: str = "GET") -> socket.socket:
    """Ask for the file, and read nothing yet."""
    client = connect(hub)
    host = hub.url.removeprefix("http://")
    lines = [f"{method} /data/x.bin?a=b HTTP/1.1", f"Host: {host}", *headers, "", ""]
    client.sendall("\r\n".join(lines).encode())
    return client


def receive(client: socket.socket, size: int) -> bytes:
    """This many bytes, or fewer if the connection ends."""
    data = bytearray()
    while len(data) < size and (more := client.recv(min(2**16, size - len(data)))):
        data += more
    return bytes(data)


def receive_head(client: socket.socket) -> list[str]:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        more = client.recv(1)
        assert more, "the connection ends in the header"
        head += more
    status, *lines = head.decode("latin-1").split("\r\n")[:-2]
    version, number, reason = status.split(" ", 2)
    assert (version, reason) == ("HTTP/1.1", http.client.responses[int(number)])
    return [number, *(line for line in lines if line.partition(":")[0] in TOLD)]


def check(hub: Hub, client: socket.socket, expected: Wire) -> None:
    if expected.head:
        assert receive_head(client) == expected.head
    assert receive(client, len(expected.body)) == expected.body
    if expected.end == "end":
        assert client.recv(1) == b""
    elif expected.end == "reset":
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    elif expected.end == "silence":
        until(lambda: len(hub.requests) >= 1)
        assert_silent(client)
        client.shutdown(socket.SHUT_WR)  # to the hub, this client has gone
        assert client.recv(1) == b""
    else:
        client.sendall(b"GET /nothing HTTP/1.1\r\n\r\n")
        assert receive_head(client)[0] == "404"


@pytest.mark.parametrize("fault", FRESH)
def test_what_it_sends(hub: Hub, fault: HubFault) -> None:
    hub.fault("data/*", fault)
    expected = FRESH[fault]
    with dial(hub) as client:
        check(hub, client, expected)
    request = hub.requests[0]
    status = int(expected.head[0]) if expected.head else None
    assert (request.fault, request.status) == (fault, status)
    assert request.bytes_sent == len(expected.body)


@pytest.mark.parametrize("fault", RESUMED)
def test_what_it_sends_to_a_request_with_a_range(hub: Hub, fault: HubFault) -> None:
    hub.fault("data/*", fault)
    with dial(hub, "Range: bytes=300-") as client:
        check(hub, client, RESUMED[fault])


def test_no_fault_is_without_a_line_in_the_documentation() -> None:
    page = (ROOT / "docs" / "loopback-hub.md").read_text()
    assert re.findall(r"(?m)^\| `([a-z0-9-]+)` \|", page) == list(HubFault)


def test_retry_after_a_date(hub: Hub) -> None:
    before = int(time.time())
    hub.fault("data/*", HubFault.RETRY_AFTER_DATE)
    with dial(hub) as client:
        status, retry_after, _ = receive_head(client)
    value = retry_after.removeprefix("Retry-After: ")
    assert (status, value[-4:]) == ("503", " GMT")
    assert before + 1 <= email.utils.parsedate_to_datetime(value).timestamp()


def test_another_etag_and_then_the_right_one(hub: Hub) -> None:
    hub.fault("data/*", HubFault.RANGE_OTHER_ETAG, times=1)
    wrong, right = (ask(hub, "/data/x.bin", Range="bytes=300-").headers["ETag"] for _ in range(2))
    assert right == f'"{SHA256}"' != wrong


def test_a_huge_header(hub: Hub) -> None:
    hub.fault("data/*", HubFault.HUGE_HEADER)
    with dial(hub, "Connection: close") as client:
        head, _, body = receive(client, 2**21).partition(b"\r\n\r\n")
    assert max(map(len, head.split(b"\r\n"))) == len("X-Padding: ") + 2**20
    assert body == DATA


def test_a_reset_comes_after_what_was_sent_before_it(hub: Hub) -> None:
    hub.put("data/x.bin", bytes(2**24))
    hub.fault("data/*", HubFault.RESET_IN_BODY, at=2**23 + 5)
    with dial(hub) as client:
        assert receive_head(client) == ["200", f"Content-Length: {2**24}"]
        assert len(receive(client, 2**23 + 5)) == 2**23 + 5
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_what_never_ends_goes_on(hub: Hub) -> None:
    hub.fault("data/*", HubFault.ENDLESS_BODY, times=1)
    hub.fault("data/*", HubFault.GZIP_BOMB)
    with dial(hub) as client:
        assert receive_head(client) == ["200", "Connection: close"]
        assert receive(client, 10**6) == DATA + bytes(10**6 - 1000)
    with dial(hub) as client:
        assert receive_head(client) == ["200", "Content-Encoding: gzip", "Connection: close"]
        packed = receive(client, 20_000)
    unpacked = zlib.decompressobj(wbits=31).decompress(packed)
    assert len(unpacked) > 100 * len(packed)
    assert not unpacked.strip(b"\0")


def assert_silent(client: socket.socket) -> None:
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)
    client.settimeout(DEADLINE)


def test_drops_come_one_by_one(hub: Hub) -> None:
    hub.fault("data/*", HubFault.DRIP, interval=1e6)
    with dial(hub) as client:
        assert receive_head(client) == ["200", ALL]
        assert receive(client, 1) == DATA[:1]
        assert_silent(client)


def test_another_host_has_the_file(hub: Hub) -> None:
    hub.fault("data/*", HubFault.REDIRECT_TO_OTHER_HOST)
    port = hub.url.rpartition(":")[2]
    with dial(hub) as client:
        location = f"Location: http://localhost:{port}/data/x.bin?a=b"
        assert receive_head(client) == ["302", location, "Content-Length: 0"]
    ask(hub, "/data/x.bin", Host=f"localhost:{port}")
    assert [request.host for request in hub.requests_for("data/*")] == [
        f"127.0.0.1:{port}",
        f"localhost:{port}",
    ]


@pytest.mark.parametrize(
    ("fault", "body"),
    [
        (HubFault.CHUNKED_BAD_SIZE, b"7\r\n" + DATA[:7] + b"\r\nzz\r\n"),
        (HubFault.FLIPPED, DATA[:7] + b"\x06" + DATA[8:]),
    ],
)
def test_the_harm_is_done_where_it_is_asked_for(hub: Hub, fault: HubFault, body: bytes) -> None:
    hub.fault("data/*", fault, at=7)
    with dial(hub) as client:
        receive_head(client)
        assert receive(client, len(body)) == body


@pytest.mark.parametrize("fault", sorted(FRESH.keys() | RESUMED.keys()))
def test_a_small_file_suffers_too(hub: Hub, fault: HubFault) -> None:
    hub.fault("*", fault)
    for number, size in enumerate((0, 1, 40), start=1):
        hub.put("data/x.bin", DATA[:size])
        with dial(hub, "Connection: close", "Range: bytes=0-") as client:
            if "stall" not in fault:
                with contextlib.suppress(ConnectionResetError):
                    receive(client, 10**6)
            until(lambda n=number: len(hub.requests) >= n)
        happens = size > 0 and fault is not HubFault.RANGE_UNASKED
        assert hub.requests[-1].fault == (fault if happens else None)


def faults(hub: Hub, pattern: str = "*") -> list[str | None]:
    return [request.fault for request in hub.requests_for(pattern)]


def test_each_file_is_counted_for_itself(hub: Hub) -> None:
    hub.put("data/y.bin", b"y")
    hub.fault("data/*", "status-500", times=1)
    for name in ("x", "y", "x", "y"):
        ask(hub, f"/data/{name}.bin")
    assert faults(hub) == ["status-500", "status-500", None, None]


def test_one_after_the_other_until_they_are_healed(hub: Hub) -> None:
    hub.fault("*", "status-500", times=1)
    hub.fault("*", "status-503", nth=2, times=2)
    hub.fault("*", "status-429", retry_after="Wed, 21 Oct 2015 07:28:00 GMT")
    for _ in range(5):
        ask(hub, "/data/x.bin")
    with dial(hub) as client:
        assert receive_head(client)[1] == "Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"
    hub.heal()
    ask(hub, "/data/x.bin")
    suffered = ["status-500", "status-429", "status-503", "status-503", "status-429", "status-429"]
    assert faults(hub) == [*suffered, None]


def test_what_goes_wrong_anyhow_is_not_counted(hub: Hub) -> None:
    hub.fault("*", "status-500", times=1)
    ask(hub, "/data/nothing.bin")
    ask(hub, "/data/x.bin", If_None_Match="*")
    ask(hub, "/data/x.bin", Range="bytes=5000-")
    ask(hub, "/data/x.bin")
    assert [request.status for request in hub.requests] == [404, 304, 416, 500]
    assert faults(hub) == [None, None, None, "status-500"]


def test_the_method(hub: Hub) -> None:
    for method in ("GET", "HEAD", None):
        hub.heal()
        hub.fault("*", "status-500", method=method)
        ask(hub, "/data/x.bin")
        ask(hub, "/data/x.bin", method="HEAD")
    suffer = [fault is not None for fault in faults(hub)]
    assert suffer == [True, False, False, True, True, True]


@pytest.mark.parametrize("fault", [fault for fault in HubFault if "range" not in fault])
def test_an_answer_to_head_has_no_body(hub: Hub, fault: HubFault) -> None:
    hub.fault("*", fault, method="HEAD")
    data = b""
    with dial(hub, "Connection: close", method="HEAD") as client:
        until(lambda: len(hub.requests) >= 1)
        if fault.startswith("stall-"):
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while more := client.recv(2**16):
                data += more
    if hub.requests[0].status is not None:
        assert data.startswith(b"HTTP/1.1 ")
        assert data.endswith(b"\r\n\r\n")
        assert data.count(b"\r\n\r\n") == 1


@pytest.mark.parametrize(
    ("pattern", "suffer"),
    [
        ("data/x.bin", [True, False, False]),
        ("data/[a-x].bin", [True, False, False]),
        ("*", [True, True, True]),
        ("train.txt", [False, True, True]),
        ("datasets/owner/name/*", [False, True, False]),
        ("models/owner/name/train.txt", [False, False, True]),
        ("*/resolve/main/train.txt", [False, True, True]),
        ("owner/name/resolve/*", [False, False, True]),
    ],
)
def test_patterns(hub: Hub, pattern: str, suffer: list[bool]) -> None:
    kinds = ("dataset", "model")
    places = [hub.put("train.txt", DATA, repo="owner/name", repo_type=kind) for kind in kinds]
    hub.fault(pattern, "status-500")
    for place in ("/data/x.bin", *places):
        ask(hub, place)
    assert [fault is not None for fault in faults(hub)] == suffer


@pytest.mark.parametrize(
    ("error", "text", "arguments"),
    [
        (ValueError, "no 'reset'; did you mean 'reset-", {"fault": "reset"}),
        (ValueError, "times: expected 1 or more, found 0", {"times": 0}),
        (TypeError, "nth: expected int, found None", {"nth": None}),
        (TypeError, "^fault: there is no 'tims'; did you mean 'times'", {"tims": 1}),
        (ValueError, "at: status-503 has no such option; chunked-", {"at": 1}),
        (ValueError, "at: expected 0 or more, found -1", {"fault": "truncated", "at": -1}),
        (ValueError, "interval: expected .*, found inf", {"fault": "drip", "interval": 1e999}),
        (ValueError, "retry_after: expected a line", {"retry_after": "1\r\nX: y"}),
        (TypeError, "match: expected str, found PosixPath", {"match": Path("x")}),
        (ValueError, "method: expected 'GET', found 'get'", {"method": "get"}),
        *(
            (ValueError, f"match: expected one that fits a file, .*'{near}'", {"match": pattern})
            for pattern, near in [
                *(("data/y.bin", "data/x.bin"), ("x.bin", "data/x.bin"), ("", "train.bin")),
                ("datasets/owner/nmae/train.bin", "datasets/owner/name/train.bin"),
            ]
        ),
    ],
)
def test_wrong_arguments(hub, error, text, arguments) -> None:
    hub.put("train.bin", DATA, repo="owner/name")
    with pytest.raises(error, match=text):
        hub.fault(**{"match": "*", "fault": "status-503", **arguments})
    ask(hub, "/data/x.bin")
    assert faults(hub) == [None]


def test_without_files_only_requests_can_be_meant() -> None:
    with serve_hub() as hub:
        for pattern in ("*", "api/*", "*/resolve/*", "api/models/*/tree/*"):
            hub.fault(pattern, "status-503")
        with pytest.raises(ValueError, match="nothing was put there yet"):
            hub.fault("*.bin", "status-503")


def test_in_a_repository_only_the_get_that_gets_the_bytes_counts(hub: Hub) -> None:
    place = hub.put("train.bin", DATA, repo="owner/name").removeprefix(hub.url)
    hub.fault("train.bin", "status-500", times=1)
    ask(hub, place, method="HEAD")
    for status in (500, 200):
        ask(hub, ask(hub, place).headers["Location"].removeprefix(hub.cdn_url))
        assert [request.status for request in hub.requests[-2:]] == [302, status]
