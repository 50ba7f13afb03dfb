"""A server that sends what it is told to, byte by byte, and cases that ask it, many at once."""

import concurrent.futures
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

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


Respond = Callable[[Request], Iterable[Step]]


class RawServer:
    """Answers each request by what ``respond`` yields, until the context ends."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._counts: dict[tuple[str, str], int] = {}
        self._is_over = False
        self.requests: list[Request] = []
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> "RawServer":
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            with self._lock:
                self._open.add(client)
                if self._is_over:
                    with contextlib.suppress(OSError):  # who asked may be gone
                        client.shutdown(socket.SHUT_RDWR)
            thread = threading.Thread(target=self._serve, args=[client])
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        client.settimeout(_PATIENCE)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with contextlib.suppress(OSError), client.makefile("rb") as stream:
                while request := self._read(stream):
                    if not self._answer(client, request):
                        break
        finally:
            with self._lock:
                self._open.discard(client)
            client.close()

    def _read(self, stream) -> Request | None:
        method, target, _ = [*stream.readline(2**16).decode("latin-1").split(" "), "", ""][:3]
        headers = {}
        while (line := stream.readline(2**16).decode("latin-1").strip()) and ":" in line:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        if not target:
            return None
        body = stream.read(int(headers.get("content-length", "0")))
        case = target.lstrip("/").partition("/")[0].partition("?")[0]
        wanted = headers.get("range", "").removeprefix("bytes=").partition("-")[0]
        with self._lock:
            nth = self._counts.get((method, case), 0)
            self._counts[method, case] = nth + 1
            start = int(wanted) if wanted else None
            request = Request(method, case, start, headers, nth, target, body)
            self.requests.append(request)
        return request

    def _answer(self, client: socket.socket, request: Request) -> bool:
        """Whether the connection is there for the next request."""
        for step in self._steps(request):
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

    def _steps(self, request: Request) -> Iterator[Step]:
        yield from self._respond(request)


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
MOST_TOLD = 20_000
"""Characters of one error."""


class Asking:
    """Runs cases; what they are, and how they are answered, subclasses say."""

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
        """Note an error that floods or paints the terminal."""
        if len(text) > MOST_TOLD or not text.replace("\n", "").isprintable():
            self.harm("wrong class", case, f"{len(text)} characters: {text[:300]!r}")
