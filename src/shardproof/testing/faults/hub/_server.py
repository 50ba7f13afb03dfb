"""A server on 127.0.0.1 that sends what a function returns, and ends at once when it is closed."""

import contextlib
import email.utils
import fcntl
import http.client
import http.server
import itertools
import select
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from shardproof.testing.faults.hub._answers import End, Incoming, Piece, Wire, answer

_TICKS = 100  # a limited rate is spread over so many portions a second
_MOST_BODY = 2**20  # bytes of a request's body


def _has_unconfirmed(connection: socket.socket) -> bool:
    """Whether bytes are left that the other side's kernel has not confirmed."""
    try:  # SIOCOUTQ (tcp(7)) has the number of TIOCOUTQ
        return any(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
    except OSError:  # of macOS, which has SO_NWRITE of sys/socket.h
        return connection.getsockopt(socket.SOL_SOCKET, 0x1024) > 0


class Tally:
    """How many bytes of one answer's body were handed to the kernel."""

    sent = 0


class Server:
    """Two listening sockets on 127.0.0.1, and a thread for each connection."""

    def __init__(
        self,
        respond: Callable[[Incoming], tuple[Wire, Tally]],
        *,
        rate: float | None,
        latency: float,
    ) -> None:
        self.respond = respond
        self.rate = rate
        self.latency = latency
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._connections: dict[int, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        self._sockets = contextlib.ExitStack()
        servers = (socket.create_server(("127.0.0.1", 0), backlog=128) for _ in range(2))
        listeners = [self._sockets.enter_context(server) for server in servers]
        self.ports = tuple(int(listener.getsockname()[1]) for listener in listeners)
        self._acceptors = [_thread("accept", self._accept, listener) for listener in listeners]

    def start(self) -> None:
        for acceptor in self._acceptors:
            acceptor.start()

    def close(self) -> None:
        """End every connection, whatever it waits for, and every thread."""
        self.closing.set()
        for port, acceptor in zip(self.ports, self._acceptors, strict=True):
            if acceptor.ident is not None:
                with contextlib.suppress(OSError):  # it wakes who accepts
                    socket.create_connection(("127.0.0.1", port)).close()
                acceptor.join()
        with self._lock:
            for connection in self._connections.values():
                with contextlib.suppress(OSError):  # its client was faster
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._sockets.close()

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(1)  # where no descriptor is left to wake it by
        while not self.closing.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:  # the client has gone, or the process is out of descriptors for now
                self.closing.wait(0.01)
                continue
            connection.settimeout(None)  # whatever socket.setdefaulttimeout() says
            # What is sent before a pause or a harm is not held back by the kernel.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                number = next(self._numbers)
                self._connections[number] = connection
                thread = _thread(f"connection {number}", self._serve, connection, number)
                self._threads = [each for each in self._threads if each.is_alive()]
                thread.start()
                self._threads.append(thread)

    def _serve(self, connection: socket.socket, number: int) -> None:
        try:
            with contextlib.suppress(OSError):  # the client has gone, or the hub closes
                _Connection(connection, self, number)
        finally:
            with self._lock:
                del self._connections[number]
            connection.close()


def _thread(name: str, target: Callable[..., None], *args: object) -> threading.Thread:
    return threading.Thread(target=target, args=args, name=f"shardproof hub: {name}", daemon=True)


class _Connection(http.server.BaseHTTPRequestHandler):
    """One connection: requests are read by the standard library, answers are sent from here."""

    protocol_version = "HTTP/1.1"

    def __init__(self, connection: socket.socket, owner: Server, number: int) -> None:
        self.owner = owner
        self.number = number
        self.due = 0.0
        # The base class serves the connection in its constructor, and never looks at its server.
        super().__init__(connection, connection.getpeername(), cast("Any", owner))

    def log_message(self, *args: object) -> None:
        """Print nothing: the hub has a log of its own."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what cannot be read; the base class would answer some of it in HTTP/0.9."""
        self.close_connection = True
        note = f"{explain or message or 'This is no request that the hub can read.'}\n".encode()
        self.connection.sendall(self._head(code, answer(code, note).wire()) + note)

    def exchange(self) -> None:
        """Answer one request."""
        length = self.headers.get("Content-Length", "0").strip()
        is_number = length.isascii() and length.isdigit() and len(length) < 10
        if "Transfer-Encoding" in self.headers or not is_number or int(length) > _MOST_BODY:
            self.send_error(413)
            return
        body = self.rfile.read(int(length))
        names = {name.lower() for name in self.headers}
        headers = {name: ", ".join(self.headers.get_all(name, ())) for name in names}
        incoming = Incoming(str(self.command), self.path, headers, body, self.number)
        wire, tally = self.owner.respond(incoming)
        self._wait(self.owner.latency)
        if wire.status is not None:
            self.connection.sendall(self._head(wire.status, wire))
        if self.command != "HEAD" or wire.status is None:
            for piece in wire.body:
                self._send(piece, tally)
        self.close_connection = self.close_connection or wire.end is not End.KEEP
        if wire.end is End.STALL:
            while self.connection.recv(2**16):
                pass
        elif wire.end is End.RESET:
            # A reset throws away what is not confirmed: that is waited for, or the client's end.
            gone = select.poll()
            gone.register(self.connection, getattr(select, "POLLRDHUP", select.POLLHUP))
            while _has_unconfirmed(self.connection):
                if gone.poll(1):
                    break
            # With no time to linger, closing sends a reset: socket(7), SO_LINGER.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    do_GET = do_HEAD = do_POST = exchange  # noqa: N815 - so the base class calls them
    do_DELETE = do_PATCH = do_PUT = exchange  # noqa: N815

    def _head(self, status: int, wire: Wire) -> bytes:
        reason = http.client.responses.get(status, "")
        headers = [
            ("Server", "shardproof"),
            ("Date", email.utils.formatdate(usegmt=True)),
            *wire.headers,
        ]
        if self.close_connection:
            headers.append(("Connection", "close"))
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _send(self, piece: Piece, tally: Tally) -> None:
        if isinstance(piece, float):
            self._wait(piece)
            return
        if isinstance(piece, bytes):
            self._send_block(memoryview(piece), tally)
            return
        left = piece.size
        for block in piece.content.blocks(piece.start, piece.stop):
            self._send_block(memoryview(block), tally)
            left -= len(block)
        if left:
            raise OSError("the file became shorter while it was sent")

    def _send_block(self, block: memoryview, tally: Tally) -> None:
        while block:
            size = len(block)
            if self.owner.rate is not None:
                size = min(size, max(1, int(self.owner.rate / _TICKS)))
                self.due = max(self.due, time.monotonic()) + size / self.owner.rate
                self._wait(self.due - time.monotonic())
            # Counted before: a client that has received the last byte finds all of them counted.
            tally.sent += size
            sent = 0
            try:
                sent = self.connection.send(block[:size])
            finally:
                tally.sent -= size - sent
            block = block[sent:]

    def _wait(self, seconds: float) -> None:
        if self.owner.closing.wait(max(0.0, seconds)):
            raise ConnectionAbortedError("the hub closes")
