"""A server that sends what it is told to, byte by byte, and cases that ask it, many at once."""

import concurrent.futures
import contextlib
import socket
import socketserver
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from tests.attacks.tally import Harm, Tally

Step = bytes | float | Literal["reset", "stall", "keep"]
"""Bytes to send; seconds to wait; an end: a reset, silence until the client goes, or the next
request on the same connection. Without one of these ends the connection is closed."""

_PATIENCE = 30.0  # seconds; only what hangs waits as long


class Request(NamedTuple):
    method: str
    case: str  # the first part of its path, which says who is asking
    start: int | None  # where the range begins that is asked for
    headers: dict[str, str]  # names in lower case
    nth: int  # how many of this method this case has made before
    target: str = ""
    body: bytes = b""


class _Handler(socketserver.StreamRequestHandler):
    server: "RawServer"
    timeout = _PATIENCE
    disable_nagle_algorithm = True

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while (request := self._read()) and self._answer(request):
                pass

    def _read(self) -> Request | None:
        line = self.rfile.readline(2**16).decode("latin-1")
        method, target, _ = [*line.split(" "), "", ""][:3]
        headers = {}
        while (line := self.rfile.readline(2**16).decode("latin-1").strip()) and ":" in line:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if not target:
            return None
        body = self.rfile.read(int(headers.get("content-length", "0")))
        case = target.lstrip("/").partition("/")[0].partition("?")[0]
        wanted = headers.get("range", "").removeprefix("bytes=").partition("-")[0]
        start = int(wanted) if wanted else None
        with self.server.lock:
            nth = self.server.counts[method, case]
            self.server.counts[method, case] += 1
            request = Request(method, case, start, headers, nth, target, body)
            self.server.requests.append(request)
        return request

    def _answer(self, request: Request) -> bool:
        """Whether the connection is there for the next request."""
        client = self.connection
        for step in self.server.respond(request):
            if step == "keep":
                return True
            if step == "reset":
                linger = struct.pack("ii", 1, 0)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return False
            if step == "stall":
                client.recv(1)
                return False
            if isinstance(step, float):
                threading.Event().wait(step)
            elif isinstance(step, bytes):
                client.sendall(step)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
            client.settimeout(1.0)  # what is still on its way would make a reset of the close
            client.recv(2**16)
        return False


class RawServer(socketserver.ThreadingTCPServer):
    request_queue_size = 256

    def __init__(self, respond: Callable[[Request], Iterable[Step]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond, self.lock, self.requests = respond, threading.Lock(), list[Request]()
        self.counts = Counter[tuple[str, str]]()
        self.port: int = self.socket.getsockname()[1]
        self._open = set[Any]()
        self._thread = threading.Thread(target=self.serve_forever, args=[0.05])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        with self.lock:
            for each in self._open:
                with contextlib.suppress(OSError):  # who asked may be gone
                    each.shutdown(socket.SHUT_RDWR)
        self.server_close()  # which waits for the threads

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close it, and no more: whose end is a reset sends no other end before."""
        with self.lock:
            self._open.discard(request)
        request.close()


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
MOST_TOLD = 20_000


class Asking:
    n_at_once: ClassVar[int] = 6

    def __init__(self, tally: Tally, cases: Sequence[Any], root: Path) -> None:
        self._tally, self.cases, self._root = tally, cases, root
        self._lock = threading.Lock()
        self.url = ""

    def answer(self, number: int, request: Request) -> Iterable[Step]:
        raise NotImplementedError

    def ask(self, number: int, case: Any, path: Path) -> None:
        raise NotImplementedError

    def run(self) -> list[Request]:
        pool = concurrent.futures.ThreadPoolExecutor(self.n_at_once, "attack")
        with RawServer(self._respond) as server, pool:
            self.url = f"http://127.0.0.1:{server.port}"
            list(pool.map(self._run_one, range(len(self.cases))))
        return server.requests

    def _respond(self, request: Request) -> Iterable[Step]:
        if not request.case.isdigit():  # a redirect that leads somewhere else
            return [NOT_FOUND]
        return self.answer(int(request.case), request)

    def _run_one(self, number: int) -> None:
        path = self._root / str(number)
        path.mkdir()
        self.ask(number, self.cases[number], path)
        with self._lock:
            self._tally.count()

    def harm(self, kind: Harm, case: object, what: str) -> None:
        with self._lock:
            self._tally.harm(kind, f"{case}: {what}")

    def judge_text(self, case: object, text: str) -> None:
        if len(text) > MOST_TOLD or not text.replace("\n", "").isprintable():
            self.harm("wrong class", case, f"{len(text)} characters: {text[:300]!r}")
