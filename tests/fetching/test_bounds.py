"""How many bytes are taken: as many as are promised; where nobody says how many, up to a cap."""

import contextlib
import hashlib
import itertools
from collections.abc import Iterator

import pytest

from shardproof import FetchError, validate
from shardproof.fetching import HttpSource, Limits, RemoteFile, fetch, fetch_file
from shardproof.fetching.transfer import _relay
from shardproof.promises import _elsewhere
from shardproof.testing.faults import serve_hub
from tests.attacks.raw_server import RawServer, Request, Step

DATA = bytes(range(256)) * 40
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
CAP = 2**20
LIMITS = Limits(max_backoff=0.001, max_unsized_bytes=CAP)
ENDLESS = 400 * CAP
HEAD = 'HTTP/1.1 200 OK\r\nETag: "v1"\r\n'


class Server:
    """Sends a body in one of the ways that tell no size, and counts what it has sent."""

    def __init__(self, body: bytes, how: str, *, more: int = 0, head: int | None = None) -> None:
        self.body, self.how, self.more, self.head, self.n_sent = body, how, more, head, 0

    def __call__(self, request: Request) -> Iterator[Step]:
        if request.method == "HEAD":
            said = "" if self.head is None else f"Content-Length: {self.head}\r\n"
            yield f"{HEAD}{said}\r\n".encode()
            return
        yield f"{HEAD}{self._framing()}\r\n".encode()
        zeros = itertools.repeat(bytes(2**16), self.more // 2**16)
        for block in (self.body, *[bytes(self.more % 2**16)], *zeros):
            self.n_sent += len(block)
            if block:
                yield b"%x\r\n%s\r\n" % (len(block), block) if self.how == "chunked" else block
        if self.how == "chunked":
            yield b"0\r\n\r\n"

    def _framing(self) -> str:
        if self.how == "said":
            return f"Content-Length: {len(self.body) + self.more}\r\n"
        return "Transfer-Encoding: chunked\r\n" if self.how == "chunked" else ""


@contextlib.contextmanager
def serving(server: Server) -> Iterator[str]:
    with RawServer(server) as raw:
        yield f"http://127.0.0.1:{raw.port}/a"


HOW = pytest.mark.parametrize("how", ["chunked", "until it closes"])


@HOW
def test_a_body_of_no_size_ends_at_the_cap(how, tmp_path) -> None:
    server = Server(DATA, how, more=ENDLESS)
    match = f"expected at most {CAP} bytes of a file of unknown size, found more: give its size"
    with serving(server) as url, pytest.raises(FetchError, match=match):
        fetch(f"{url}/x", tmp_path, digest=DIGEST, limits=LIMITS)
    assert server.n_sent < ENDLESS / 4
    assert list(tmp_path.iterdir()) == []


@HOW
def test_up_to_the_cap_it_is_taken(how, tmp_path) -> None:
    with serving(Server(DATA, how)) as url:
        limits = Limits(max_backoff=0.001, max_unsized_bytes=len(DATA))
        assert fetch(f"{url}/x", tmp_path, digest=DIGEST, limits=limits).proven
        limits = Limits(max_backoff=0.001, max_unsized_bytes=len(DATA) - 1)
        with pytest.raises(FetchError, match=f"expected at most {len(DATA) - 1} bytes"):
            fetch(f"{url}/x", tmp_path / "sub", digest=DIGEST, limits=limits)


def test_the_cap_is_of_what_has_no_size(tmp_path) -> None:
    with serve_hub({"a/x": DATA}) as hub:
        assert fetch(f"{hub.url}/a/x", tmp_path, limits=Limits(max_unsized_bytes=1)).path.exists()
    assert Limits().max_unsized_bytes == 2**30


@HOW
@pytest.mark.parametrize("digest", [DIGEST, None])
@pytest.mark.parametrize("more", [1, ENDLESS])
@pytest.mark.parametrize("connections", [1, 4])
def test_of_a_promised_size_one_byte_more_is_too_many(
    how, digest, more, connections, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(_relay, "_MIN_SPAN", 1024)  # worth several connections
    server = Server(DATA, how, more=more)
    limits = Limits(max_backoff=0.001, connections=connections)
    file = RemoteFile("x", size=len(DATA), has_ranges=True)
    match = f"expected {len(DATA)} bytes, found more"
    with serving(server) as url, HttpSource(url) as source, pytest.raises(FetchError, match=match):
        fetch_file(source, "x", tmp_path / "x", file=file, digest=digest, limits=limits)
    assert server.n_sent < 3 * ENDLESS / 4
    assert list(tmp_path.iterdir()) == []


LIST = "".join(f"{DIGEST[7:]}  {n}\n" for n in range(100)).encode()


@pytest.mark.parametrize("head", [None, len(LIST), len(LIST) // 2, 2 * len(LIST)])
def test_a_list_is_read_to_its_end_whatever_was_said_before(head, tmp_path) -> None:
    """By HEAD, or by nobody: half of the lines would be half of the promise."""
    with serving(Server(LIST, "chunked", head=head)) as url:
        assert validate(tmp_path, against=f"{url}/SHA256SUMS").n_files == 100


def test_a_list_whose_end_may_be_none_is_refused(tmp_path) -> None:
    with (
        serving(Server(LIST, "until it closes")) as url,
        pytest.raises(FetchError, match="its length is unknown"),
    ):
        validate(tmp_path, against=f"{url}/SHA256SUMS")


@pytest.mark.parametrize("how", ["chunked", "said"])
def test_a_list_has_a_cap(how, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(_elsewhere, "_MAX_LIST_BYTES", CAP)
    server = Server(LIST, how, more=ENDLESS)
    with serving(server) as url, pytest.raises(FetchError, match=f"at most {CAP} bytes"):
        validate(tmp_path, against=f"{url}/SHA256SUMS")
    assert server.n_sent < ENDLESS / 4
