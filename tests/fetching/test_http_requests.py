"""Requests: what is read of answers that lead elsewhere, and what of them nobody is told."""

import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator

import pytest

from shardproof import FetchError, SourceError
from shardproof._base.messages import WRONG_USAGE
from shardproof.fetching import HttpSource, HubSource, Limits, ReadRequest, Source, fetch_file
from shardproof.fetching.sources._http import Web
from shardproof.testing.faults import Hub
from tests.attacks.raw_server import RawServer, Request, Step
from tests.helpers.forking import ended, forked

SECRET = "s3cr3t"
ONCE = Limits(attempts=1, max_backoff=0.01, stall_timeout=30.0)
END = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def everything_logged(caplog) -> Callable[[], str]:
    caplog.set_level(logging.DEBUG)
    return lambda: "\n".join(record.getMessage() for record in caplog.records)


def redirect(*headers: str, to: str = "/end/x.bin") -> bytes:
    return "\r\n".join(["HTTP/1.1 302 Found", f"Location: {to}", *headers, "", ""]).encode()


class TestRedirects:
    def test_ten_are_followed(self, tmp_path) -> None:
        def respond(request: Request) -> Iterator[Step]:
            n = int(request.case)
            body = b"" if request.method == "HEAD" else b"1234"
            yield redirect("Content-Length: 0", to=f"/{n - 1}/x.bin") if n else END + body
            yield "keep"

        with RawServer(respond) as server:
            ten, eleven = (HttpSource(f"http://127.0.0.1:{server.port}/{n}") for n in (10, 11))
            with contextlib.closing(ten), contextlib.closing(eleven):
                fetch_file(ten, "x.bin", tmp_path / "x", limits=ONCE)
                with pytest.raises(FetchError, match="leads nowhere: more than 10 redirects"):
                    fetch_file(eleven, "x.bin", tmp_path / "y", limits=ONCE)

        assert (tmp_path / "x").read_bytes() == b"1234"

    def test_what_is_secret_is_for_no_host_that_the_address_leads_to_nor_for_logs(
        self, everything_logged
    ) -> None:
        def respond(request: Request) -> Iterator[Step]:
            host, _, port = request.headers["host"].partition(":")
            to = f"http://{SECRET}:{SECRET}@localhost:{port}/a"
            led = redirect("Content-Length: 0", f"Set-Cookie: a={SECRET}", to=to)
            yield END if host == "localhost" else led

        with RawServer(respond) as server:
            url = f"http://user:{SECRET}@127.0.0.1:{server.port}/a"
            with contextlib.closing(HttpSource(url, headers={"X-Key": SECRET})) as source:
                source.stat("x.bin", timeout=10)

        for name in ("authorization", "x-key"):
            assert [name in request.headers for request in server.requests] == [True, False]
        assert SECRET not in everything_logged()

    @pytest.mark.parametrize(("status", "sent"), [(303, ("GET", b"")), (307, ("POST", b"a=b+c"))])
    def test_a_form_is_posted_again_where_the_answer_says_so(self, status, sent) -> None:
        def respond(request: Request) -> Iterator[Step]:
            led = redirect("Content-Length: 0").replace(b"302", b"%d" % status)
            yield from [END + b"1234" if request.case == "end" else led, "keep"]

        with RawServer(respond) as server:
            web, url = Web(dict), f"http://127.0.0.1:{server.port}/a"
            text, _ = web.text(url, 9, form={"a": "b c"}, timeout=10, cancellation=None)
            web.close()

        assert text == b"1234"
        assert [(r.method, r.body) for r in server.requests] == [("POST", b"a=b+c"), sent]

    def test_a_cookie_lives_as_long_as_its_request_with_its_redirects(self) -> None:
        def respond(request: Request) -> Iterator[Step]:
            if request.case == "end":
                yield from [END + b"1234", "keep"]
            else:
                n = request.nth
                cookie = f"Set-Cookie: c{n}={n}; Path=/; Max-Age=999999"
                yield from [redirect(cookie, "Content-Length: 0"), "keep"]

        with (
            RawServer(respond) as server,
            HttpSource(f"http://127.0.0.1:{server.port}/a") as source,
        ):
            for _ in range(3):
                read(source, "x.bin")

        sent = [request.headers.get("cookie") for request in server.requests]
        assert sent == [None, "c0=0", None, "c1=1", None, "c2=2"]


UNSENDABLE = [f"{SECRET}{bad}x" for bad in "\n\0\u2028é\udc80"]
AT_ITS_ENDS = [f" {SECRET}", f"\r\n{SECRET}\r\n", f"{SECRET}\x0b"]


class TestSecrets:
    @pytest.mark.parametrize("value", UNSENDABLE)
    def test_what_cannot_be_sent_is_named_and_not_told(self, value) -> None:
        with pytest.raises(ValueError, match="'Authorization'") as caught:
            HttpSource("http://host", headers={"X": "1", "Authorization": value})
        assert SECRET not in str(caught.value)
        with pytest.raises(ValueError, match="token: ") as caught:
            HubSource("org/name", token=value)
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize("name", ["", "a b", "a:", "a\n", "é"])
    def test_a_name_that_no_header_has(self, name) -> None:
        with pytest.raises(ValueError, match="headers: "):
            HttpSource("http://host", headers={name: SECRET})

    @pytest.mark.parametrize("token", AT_ITS_ENDS)
    def test_blanks_around_a_token_are_none_of_it(self, token, shard_hub) -> None:
        with pytest.raises(ValueError, match="'Authorization'"):
            HttpSource("http://host", headers={"Authorization": token})
        shard_hub.put("0.bin", b"1234", repo="org/name")
        shard_hub.gate("org/name", SECRET)
        with HubSource("org/name", endpoint=shard_hub.url, token=token) as source:
            assert [file.name for file in source.files()] == ["0.bin"]

    @pytest.mark.parametrize("token", ["", " \n"])
    def test_a_blank_token_is_none(self, token, shard_hub, monkeypatch) -> None:
        monkeypatch.setenv("HF_TOKEN", SECRET)
        shard_hub.put("0.bin", b"1234", repo="org/name")
        with HubSource("org/name", endpoint=shard_hub.url, token=token) as source:
            source.files()
        assert not any("authorization" in request.headers for request in shard_hub.requests)


class TestLogs:
    def test_what_the_user_asks_is_still_logged(self, shard_hub, everything_logged) -> None:
        import httpx

        shard_hub.put("0.bin", b"1234")
        with contextlib.closing(HttpSource(shard_hub.url)) as source:
            first, second = (source.read(ReadRequest("0.bin")) for _ in range(2))
            with first:
                second.__enter__()
                httpx.get(f"{shard_hub.url}/while-one-is-read")
            second.__exit__(None, None, None)
        httpx.get(f"{shard_hub.url}/later")

        assert "/while-one-is-read" in everything_logged()
        assert "/later" in everything_logged()
        assert "0.bin" not in everything_logged()


def read(source: Source, name: str) -> bytes:
    with source.read(ReadRequest(name)) as response:
        return b"".join(response.chunks)


def connections_to(hub: Hub, host: str) -> list[int]:
    return [request.connection for request in hub.requests if request.host == host]


class TestForks:
    """A process that is forked has connections and locks of its own."""

    @pytest.fixture(params=["http", "hub"])
    def source(self, request, shard_hub) -> Iterator[Source]:
        for name in ("0.bin", "1.bin"):
            shard_hub.put(f"a/{name}", name.encode())
            shard_hub.put(name, name.encode(), repo="org/name")
        if request.param == "http":
            source: Source = HttpSource(f"{shard_hub.url}/a")
        else:
            source = HubSource("org/name", endpoint=shard_hub.url)
        yield source
        source.close()

    def test_each_process_asks_over_a_connection_of_its_own(self, source, shard_hub) -> None:
        def act() -> None:
            assert read(source, "1.bin") == b"1.bin"
            source.close()

        assert read(source, "0.bin") == b"0.bin"
        host = shard_hub.requests[-1].host
        (before,) = set(connections_to(shard_hub, host))
        children = [forked(act), forked(act)]
        assert [ended(child) for child in children] == [0, 0]
        assert read(source, "1.bin") == b"1.bin"

        first, *forks, last = dict.fromkeys([*connections_to(shard_hub, host), "last"])
        assert (first, last, len(forks)) == (before, "last", 2)
        assert connections_to(shard_hub, host)[-1] == before

    def test_what_is_read_when_it_is_forked_comes_to_the_parent_alone(self, shard_hub) -> None:
        data = bytes(range(256)) * 4096
        shard_hub.put("large.bin", data)
        shard_hub.put("small.bin", b"1234")
        with contextlib.closing(HttpSource(shard_hub.url)) as source:
            reading = contextlib.ExitStack()
            response = reading.enter_context(source.read(ReadRequest("large.bin")))
            first = next(response.chunks)

            def act() -> None:
                with pytest.raises(SourceError, match="Bad file descriptor"), reading:
                    next(response.chunks)
                assert read(source, "small.bin") == b"1234"

            assert ended(forked(act)) == 0
            with reading:
                assert first + b"".join(response.chunks) == data

    def test_a_lock_that_is_held_meanwhile_is_not_waited_for(self, shard_hub) -> None:
        """The commit is asked for once, and whoever else needs it waits for the answer."""
        asked, answer = threading.Event(), threading.Event()

        def respond(request: Request) -> Iterator[Step]:
            if not request.nth:
                asked.set()
                answer.wait(30)
            yield redirect("Content-Length: 0", to="nowhere://x")

        with RawServer(respond) as server:
            source = HubSource("org/name", endpoint=f"http://127.0.0.1:{server.port}")

            def ask() -> None:
                with pytest.raises(SourceError, match="leads nowhere"):
                    source.stat("x.bin", timeout=30)

            thread = threading.Thread(target=ask)
            thread.start()
            asked.wait(30)
            child = forked(ask)
            code = ended(child)
            answer.set()
            thread.join()
            source.close()
        assert code == 0


def test_nobody_is_led_to_the_port_of_another() -> None:
    """The C library takes the lowest 16 bits of whatever it is given."""

    def respond(request: Request) -> Iterator[Step]:
        yield redirect("Content-Length: 0", to=f"http://127.0.0.1:{server.port + 2**16}/end/x.bin")

    with (
        RawServer(respond) as server,
        HttpSource(f"http://127.0.0.1:{server.port}/a") as source,
        pytest.raises(SourceError, match="expected a port up to 65535"),
    ):
        source.stat("x.bin", timeout=10)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("proxy", "told"),
    [
        ("socks5://u:s3cr3t@127.0.0.1:1", "a SOCKS proxy takes socksio"),
        ("http://u:s3cr3t/x@127.0.0.1:1", "expected addresses in HTTP_PROXY"),
        ("ftp://s3cr3t@h", "expected addresses in HTTP_PROXY"),
    ],
)
def test_a_proxy_that_is_none_is_told_at_once_and_without_its_password(
    proxy, told, tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")

    with pytest.raises(FetchError, match=told) as caught:
        fetch_file(HttpSource("http://host/a"), "0.bin", tmp_path / "0.bin")

    assert caught.value.__cause__.kind == "unusable"
    assert isinstance(caught.value.__cause__.__cause__, WRONG_USAGE)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
