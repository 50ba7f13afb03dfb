"""Files over TLS, and through a proxy that is reached over TLS too."""

import contextlib
import http.server
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardproof.fetching import HttpSource, ReadRequest, fetch_file
from shardproof.fetching.sources import _client

PEM = Path(__file__).parents[1] / "helpers" / "localhost.pem"  # key and certificate, for tests only
SMALL, LARGE = b"1234", os.urandom(6 * 2**20)


@pytest.fixture(autouse=True)
def _trusted(monkeypatch) -> Iterator[None]:
    for name in ("NO_PROXY", "no_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    _client._trusted.cache_clear()
    yield
    _client._trusted.cache_clear()


@pytest.fixture
def context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


@pytest.fixture
def url(context, tmp_path) -> Iterator[str]:
    """The address of a server that has a small file and a large one."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = SMALL if self.path.endswith("small") else LARGE
            self.send_response(302 if self.path.endswith("astray") else 200)
            self.send_header("Location", f"http://{self.headers['Host']}/small")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://localhost:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@contextlib.contextmanager
def proxy(context: ssl.SSLContext | None) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the port of a proxy for one connection, and what it was asked for."""
    asked: list[bytes] = []

    def pump(one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(2**16):
                other.sendall(data)
            other.shutdown(socket.SHUT_RDWR)

    def run() -> None:
        client, _ = server.accept()
        client = client if context is None else context.wrap_socket(client, server_side=True)
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += client.recv(2**16)
        asked.append(request.split(b"\r\n")[0])
        host, _, port = request.split()[1].decode().rpartition(":")
        with client, socket.create_connection((host, int(port))) as end:
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=pump, args=(end, client))
            back.start()
            pump(client, end)
            back.join()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=run)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


@pytest.mark.parametrize("by", ["no proxy", "a proxy", "a proxy over TLS"])
def test_what_comes_over_tls_is_whole(by, url, context, tmp_path, monkeypatch) -> None:
    with contextlib.ExitStack() as stack:
        asked = [b""]
        if by != "no proxy":
            is_tls = by.endswith("TLS")
            port, asked = stack.enter_context(proxy(context if is_tls else None))
            monkeypatch.setenv("HTTPS_PROXY", f"http{'s' * is_tls}://u:p@localhost:{port}")
        with HttpSource(url) as source:
            small, large = (fetch_file(source, n, tmp_path / n) for n in ("small", "large"))

    assert (small.path.read_bytes(), large.path.read_bytes()) == (SMALL, LARGE)
    assert (small.n_attempts, large.n_attempts) == (1, 1)
    assert asked[0].startswith(b"CONNECT localhost:" if by != "no proxy" else b"")


def test_nothing_leads_from_https_to_http(url) -> None:
    refused = pytest.raises(OSError, match="it leads from https to http")
    with HttpSource(url) as source, refused, source.read(ReadRequest("astray")):
        pass


def test_a_certificate_that_nobody_trusts_is_refused(url, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    refused = pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED")
    with HttpSource(url) as source, refused, source.read(ReadRequest("small")):
        pass
