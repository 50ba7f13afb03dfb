"""A server on 127.0.0.1 that sends what it is told to, and ends at once when it is told to."""

import contextlib
import email.utils
import fcntl
import functools
import http.client
import http.server
import itertools
import os
import select
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from shardproof.testing.faults.hub._answers import End, Incoming, Pause, Piece, Wire, answer

__all__ = ["Server", "Tally"]

_AT_ONCE = 2**20  # bytes handed to the kernel in one call
_TICKS = 100  # a limited rate is spread over so many portions a second
_MOST_BODY = 2**20  # bytes of a request's body


class Tally:
    """How many bytes of one answer's body were handed to the kernel.

    A portion is counted before it is sent, and what was not sent is taken off afterwards: a client
    that has received the last byte finds all of them counted.
    """

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = 0


class Server:
    """Two listening sockets on 127.0.0.1, and a thread for each connection.

    The two answer alike. Their ports differ, so that a client takes them for two servers, and keeps
    to itself on the way to one what it may tell the other. ``respond`` says what to send in answer
    to a request, in the connection's thread; ``rate`` is in bytes a second on each connection,
    ``latency`` in seconds between a request and the first byte of its answer.
    """

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
        self._connections: dict[int, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        with contextlib.ExitStack() as stack:
            address = "127.0.0.1", 0
            self._listeners = [
                stack.enter_context(socket.create_server(address, backlog=128)) for _ in range(2)
            ]
            for listener in self._listeners:
                listener.setblocking(False)  # a client may go between being announced and accepted
            self._wake, self._waked = map(stack.enter_context, socket.socketpair())
            self._sockets = stack.pop_all()
        self.ports = tuple(int(listener.getsockname()[1]) for listener in self._listeners)
        self._acceptor = _thread("accept", self._accept)

    def start(self) -> None:
        """Accept connections from now on."""
        self._acceptor.start()

    def close(self) -> None:
        """End every connection, whatever it waits for, and every thread."""
        self.closing.set()
        self._wake.send(b"!")
        if self._acceptor.ident is not None:
            self._acceptor.join()
        with self._lock:
            for connection in self._connections.values():
                with contextlib.suppress(OSError):  # its client was faster
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._sockets.close()

    def _accept(self) -> None:
        numbers = itertools.count(1)
        listeners = {listener.fileno(): listener for listener in self._listeners}
        ready = select.poll()
        for descriptor in (self._waked.fileno(), *listeners):
            ready.register(descriptor, select.POLLIN)
        while not self.closing.is_set():
            for descriptor, _ in ready.poll():
                if descriptor in listeners:
                    self._welcome(listeners[descriptor], numbers)

    def _welcome(self, listener: socket.socket, numbers: Iterator[int]) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # the client has gone, or the process is out of descriptors for now
            self.closing.wait(0.01)
            return
        connection.settimeout(None)  # whatever socket.setdefaulttimeout() says
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = next(numbers)
        with self._lock:
            self._connections[number] = connection
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(_thread(f"connection {number}", self._serve, connection, number))
        self._threads[-1].start()

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
        """Write nothing to the terminal: the hub has a log of its own."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what cannot be read; the base class would answer some of it in HTTP/0.9."""
        self.close_connection = True
        note = f"{explain or message or 'This is no request that the hub can read.'}\n".encode()
        wire = answer(code, note).wire()
        self.connection.sendall(self._head(code, wire) + note)

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
            self._send(wire.body, tally)
        self._finish(wire.end)

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

    def _finish(self, end: End) -> None:
        self.close_connection = self.close_connection or end is not End.KEEP
        if end is End.STALL:
            while self.connection.recv(2**16):
                pass
        elif end is End.RESET:
            _wait_for_client(self.connection)  # a reset throws away what is still under way
            # With no time to linger, closing sends a reset: socket(7), SO_LINGER.
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    def _send(self, body: Iterable[Piece], tally: Tally) -> None:
        for piece in body:
            if isinstance(piece, Pause):
                self._wait(piece.seconds)
            elif isinstance(piece, bytes):
                self._send_bytes(piece, 0, len(piece), tally)
            elif isinstance(piece.content.source, bytes):
                self._send_bytes(piece.content.source, piece.start, piece.stop, tally)
            else:
                out = self.connection.fileno()
                with open(piece.content.source, "rb", buffering=0) as file:
                    send = functools.partial(os.sendfile, out, file.fileno())
                    self._send_all(send, piece.start, piece.stop, tally)

    def _send_bytes(self, data: bytes, start: int, stop: int, tally: Tally) -> None:
        view = memoryview(data)
        send = self.connection.send
        self._send_all(lambda at, size: send(view[at : at + size]), start, stop, tally)

    def _send_all(
        self, send: Callable[[int, int], int], start: int, stop: int, tally: Tally
    ) -> None:
        """Call ``send(offset, size)``, which tells how much it sent, until all is sent."""
        while start < stop:
            size = min(stop - start, _AT_ONCE)
            if self.owner.rate is not None:
                size = min(size, max(1, int(self.owner.rate / _TICKS)))
                self.due = max(self.due, time.monotonic()) + size / self.owner.rate
                self._wait(self.due - time.monotonic())
            tally.sent += size
            sent = 0
            try:
                sent = send(start, size)
            finally:
                tally.sent -= size - sent
            if not sent:
                raise OSError("the file became shorter while it was sent")
            start += sent

    def _wait(self, seconds: float) -> None:
        if self.owner.closing.wait(max(0.0, seconds)):
            raise ConnectionAbortedError("the hub closes")


def _wait_for_client(connection: socket.socket) -> None:
    """Wait until the client's kernel has confirmed every byte, or the client has gone."""
    gone = select.poll()
    gone.register(connection, select.POLLRDHUP)
    while _n_unconfirmed(connection) and not gone.poll(1):
        pass


def _n_unconfirmed(connection: socket.socket) -> int:
    # tcp(7), SIOCOUTQ, which has the number of TIOCOUTQ.
    return int(struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0])
