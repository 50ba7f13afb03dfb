"""Files of a web server: read in the thread that wants them, which waits in short steps."""

import contextlib
import hashlib
import os
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from shardproof import FetchError, FetchTimeoutError
from shardproof.fetching import (
    Cancellation,
    HttpSource,
    Limits,
    RemoteFile,
    ShardPrefetcher,
    fetch_file,
)
from shardproof.fetching.cache import PrefetchTally
from shardproof.fetching.transfer import _relay
from shardproof.testing.faults import Hub, HubFault, serve_hub
from tests.attacks.raw_server import RawServer, Request, Step
from tests.helpers.waiting import until

DATA = random.Random(3).randbytes(40_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
SLOWER = 4  # than promised, on a busy machine
FDS = "/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"
ONCE = Limits(attempts=1, timeout=60, stall_timeout=1, min_speed=1000)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve_hub(
        {"a/0.bin": DATA, "a/1.bin": DATA, "a/large.bin": DATA * 40, "a/huge.bin": DATA * 400}
    ) as hub:
        yield hub


@pytest.fixture
def source(hub, tmp_path) -> Iterator[HttpSource]:
    """One that is connected."""
    with HttpSource(f"{hub.url}/a") as source:
        fetch_file(source, "0.bin", tmp_path / "first" / "0.bin")
        yield source


@pytest.fixture
def started(source, monkeypatch) -> list[str]:
    """The names of threads that a fetch starts beside the one that it is in."""
    names: list[str] = []
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        names.append(thread.name)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noted)
    return names


@pytest.mark.parametrize("name", ["1.bin", "large.bin", "huge.bin"])
def test_over_an_open_connection_no_thread_is_started(
    source, started, tmp_path, name, monkeypatch
) -> None:
    monkeypatch.setattr(_relay, "_FAST", 0.0)
    (tmp_path / "0.bin").write_bytes(DATA)

    assert fetch_file(source, "0.bin", tmp_path / "0.bin").n_attempts == 0
    assert fetch_file(source, name, tmp_path / name).n_attempts == 1
    assert not [each for each in started if each.startswith("shardproof-")]


WAITS = ["name", "handshake", "header", "drip of a header", "body", "proxy"]


class TestWaits:
    """Each ends within a fifth of a second after it is wanted no more, and leaves nothing."""

    @pytest.fixture(params=WAITS)
    def stuck(self, request, monkeypatch) -> Iterator[HttpSource]:
        """A source that keeps a fetch waiting."""
        over, look_up = threading.Event(), socket.getaddrinfo

        def slow(*arguments: object, **keywords: object) -> object:
            over.wait(30)
            return look_up(*arguments, **keywords)

        def respond(asked: Request) -> Iterator[Step]:
            begun = b"HTTP/1.1 200 OK\r\n"
            if request.param == "drip of a header":
                yield begun
                while not over.wait(0.02):
                    yield b"X-A: b\r\n"
            yield begun + b"Content-Length: 9\r\n\r\n1" if request.param == "body" else b""
            yield "stall"

        with RawServer(respond) as server, socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{server.port}/a"
            if request.param == "name":
                monkeypatch.setattr(socket, "getaddrinfo", slow)
            if request.param == "handshake":
                url = f"https://127.0.0.1:{silent.getsockname()[1]}/a"
            if request.param == "proxy":
                monkeypatch.setenv("HTTPS_PROXY", url)
                monkeypatch.delenv("NO_PROXY", raising=False)
                monkeypatch.delenv("no_proxy", raising=False)
                url = "https://elsewhere.invalid/a"
            with HttpSource(url) as source:
                yield source
                over.set()

    def test_a_cancelled_one(self, stuck, tmp_path) -> None:
        cancellation, ended = Cancellation(), 0.0

        def cancel() -> None:
            nonlocal ended
            ended = time.monotonic()
            cancellation.cancel()

        timer = threading.Timer(0.3, cancel)
        timer.start()
        with pytest.raises(FetchError, match="it was stopped"):
            fetch_file(stuck, "x", tmp_path / "x", cancellation=cancellation)
        assert time.monotonic() - ended < 0.2 * SLOWER
        timer.join()

    @pytest.mark.slow
    @pytest.mark.parametrize("limit", ["deadline", "timeout", "stall_timeout"])
    def test_one_whose_time_is_up(self, stuck, tmp_path, limit) -> None:
        began = time.monotonic()
        limits = replace(Limits(attempts=1, min_speed=1e6), **{limit: 0.3})
        with pytest.raises(FetchTimeoutError):
            fetch_file(stuck, "x", tmp_path / "x", limits=limits)
        assert 0.3 <= time.monotonic() - began < 0.3 + 0.2 * SLOWER
        assert not list(tmp_path.iterdir())

    @pytest.fixture(autouse=True)
    def _nothing_is_left(self, stuck) -> Iterator[None]:
        n_before = len(os.listdir(FDS))
        yield
        stuck.close()
        is_over = [lambda: not [t for t in threading.enumerate() if t.name == "shardproof-fetch"]]
        is_over += [lambda: len(os.listdir(FDS)) <= n_before + 1]
        for each in is_over:
            until(each)


@pytest.mark.skipif(sys.platform != "linux", reason="others have one loopback address")
def test_an_address_of_a_host_that_leads_nowhere_leaves_time_for_the_next(
    hub, tmp_path, monkeypatch
) -> None:
    port = int(hub.url.rpartition(":")[2])
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", port)) for n in (2, 1)]
    with contextlib.ExitStack() as stack:  # what is full does not answer
        full = stack.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *_, **__: [each for each in found if host in {"a.invalid", each[4][0]}],
        )
        source = stack.enter_context(HttpSource(f"http://a.invalid:{port}/a"))
        limits = Limits(attempts=1, stall_timeout=2)
        fetched = fetch_file(source, "0.bin", tmp_path / "0.bin", limits=limits)

    assert fetched.path.read_bytes() == DATA


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (HubFault.STALL_IN_BODY, "after 1 attempt"),
        (HubFault.TRUNCATED, "the connection ended 10000000 bytes too early"),
    ],
)
def test_what_came_of_a_large_answer_is_not_held_back(hub, tmp_path, fault, said) -> None:
    hub.fault("a/huge.bin", fault, at=6_000_000)
    seen = []
    with HttpSource(f"{hub.url}/a") as source, pytest.raises(FetchError, match=said) as caught:
        fetch_file(
            source,
            "huge.bin",
            tmp_path / "1.bin",
            limits=replace(ONCE, connections=1),
            on_bytes=lambda n_bytes, _: seen.append(n_bytes),
        )

    assert seen[-1] == 6_000_000
    assert "6000000 of 16000000 bytes are kept" in str(caught.value)


def test_a_prefetcher_too_asks_once_for_each(hub, tmp_path) -> None:
    with ShardPrefetcher(f"{hub.url}/a", ["0.bin", "1.bin"], tmp_path, lookahead=1) as prefetcher:
        assert [path.read_bytes() for path in prefetcher] == [DATA, DATA]

    assert [r.method for r in hub.requests_for("*", method=None)] == ["GET", "GET"]


def test_what_a_cache_has_is_asked_for_before(hub, tmp_path) -> None:
    for _ in range(2):
        with ShardPrefetcher(f"{hub.url}/a", ["0.bin"], tmp_path, cleanup="keep") as prefetcher:
            assert prefetcher.wait_for("0.bin").read_bytes() == DATA

    assert [r.method for r in hub.requests_for("*", method=None)] == ["GET", "HEAD"]


def test_one_that_may_state_digests_is_asked(hub, tmp_path) -> None:
    class Stating(HttpSource):
        def stat(
            self, name: str, *, timeout: float, cancellation: Cancellation | None = None
        ) -> RemoteFile:
            return RemoteFile(name, digest=DIGEST)

    with Stating(f"{hub.url}/a") as source:
        assert fetch_file(source, "0.bin", tmp_path / "0.bin").proven


def test_downloads_without_a_wait_come_one_after_the_other() -> None:
    tally = PrefetchTally()
    assert tally.at_once(4) == 4
    tally.took(10_000, 0.001)
    assert tally.at_once(4) == 1
    tally.took(10_000, 1.0)
    assert tally.at_once(4) == 4


class TestAnAnswerWithoutALength:
    """Where a chunked body that was cut short is closed well, only another answer can tell."""

    @pytest.fixture
    def asked(self) -> list[str]:
        return []

    @pytest.fixture
    def fetched(self, asked, tmp_path) -> Callable[..., bytes]:
        """Fetch a file of which the server gives some bytes, and answers HEAD so."""

        def fetch(body: bytes, head: bytes, n_busy: int = 0) -> bytes:
            def respond(request: Request) -> list[Step]:
                asked.append(request.method)
                if request.method == "HEAD" and asked.count("HEAD") <= n_busy:
                    return [b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "keep"]
                if request.method == "HEAD":
                    return [head, "keep"]
                chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                return [chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), "keep"]

            with RawServer(respond) as server, HttpSource(f"http://127.0.0.1:{server.port}") as web:
                limits = Limits(attempts=1 + n_busy, max_backoff=0)
                return fetch_file(web, "x", tmp_path / "x", limits=limits).path.read_bytes()

        return fetch

    SIZE = b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n"

    def test_is_compared_with_what_head_says(self, fetched, asked) -> None:
        assert fetched(DATA, self.SIZE) == DATA
        assert asked == ["GET", "HEAD", "GET"]

    @pytest.mark.parametrize("n_busy", [0, 1])
    def test_is_refused_where_head_says_more(self, fetched, tmp_path, n_busy) -> None:
        with pytest.raises(FetchError, match="it ended after 500 of 40000 bytes"):
            fetched(DATA[:500], self.SIZE, n_busy)
        assert not (tmp_path / "x").exists()

    @pytest.mark.parametrize("status", [b"200 OK", b"405 No", b"501 No", b"403 No"])
    def test_is_taken_where_head_says_nothing(self, fetched, asked, status) -> None:
        assert fetched(DATA, b"HTTP/1.1 %s\r\nTransfer-Encoding: chunked\r\n\r\n" % status) == DATA
        assert asked == ["GET", "HEAD", "GET"]
