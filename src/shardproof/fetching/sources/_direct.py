"""Ask a web server over a connection of our own, for which a thread may wait in short steps.

httpx takes three layers, and most of the time of a small file. Here are h11, which reads and writes
what HTTP/1.1 says, and a socket. A thread that waits for it looks around several times a second: so
no other one is needed that would cut the connection. What leads elsewhere, goes through a proxy or
needs a password is left to httpx: see `_web`.
"""

import contextlib
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from shardproof._base.messages import traced, with_kind
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import Cancellation, begin_in_forks

if TYPE_CHECKING:
    import ssl

    import h11

_TICK = 0.1  # seconds between two looks around
_IDLE_SECONDS = 5.0  # after which a connection is not used again: as httpx does
_MAX_HEAD = 100 * 2**10  # bytes of a header: as httpx does
_READ = 2**16
_LARGE = 4 * 2**20  # bytes of a body that goes past h11
_PIECE = 2**20

Result = TypeVar("Result")


class Origin(NamedTuple):
    """Whom a connection is with."""

    scheme: str
    host: str
    port: int


class DirectAnswer:
    """What a server answers: as much of it as `_answers` looks at."""

    def __init__(self, line: "DirectLine", response: "h11.Response") -> None:
        self._line = line
        self.status_code = response.status_code
        self.reason_phrase = bytes(response.reason).decode("latin-1")
        self.http_version = f"HTTP/{bytes(response.http_version).decode()}"
        found: dict[str, str] = {}
        for name, value in response.headers:
            key, text = bytes(name).decode("latin-1"), bytes(value).decode("latin-1")
            found[key] = f"{found[key]}, {text}" if key in found else text
        self.headers: Mapping[str, str] = found

    @property
    def leads_elsewhere(self) -> bool:
        """Whether it is a redirect."""
        return 300 <= self.status_code < 400 and "location" in self.headers

    def chunks(self, n_bytes: int | None) -> Iterator[bytes]:
        """Return the body as it comes, of so many bytes where that is known."""
        if n_bytes is None or n_bytes < _LARGE or "transfer-encoding" in self.headers:
            return self._line.body()
        return self._line.large_body(n_bytes)


class DirectLine:
    """A connection to a server, for one request at a time."""

    def __init__(self, origin: Origin) -> None:
        import h11  # noqa: PLC0415 - only what talks to servers needs it

        self._origin, self._h11, self.is_cut = origin, h11, False
        self._state = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)
        self._socket: Any = None
        self._cancellation, self._timeout = Cancellation(), 0.0
        self._idle_since = 0.0
        begin_in_forks(self._leave)

    def connect(self, tls: "ssl.SSLContext | None", timeout: float) -> None:
        """Open the connection."""
        with _told_late("ConnectTimeout"):
            self._socket = socket.create_connection(self._origin[1:], timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.is_cut:  # while it was being opened
                self.cut()
            if tls is not None:
                tls.set_alpn_protocols(["http/1.1"])
                self._socket = tls.wrap_socket(self._socket, server_hostname=self._origin.host)
        self._socket.settimeout(_TICK)

    @property
    def is_connected(self) -> bool:
        """Whether it was opened."""
        return self._socket is not None

    def close(self) -> None:
        """End the connection."""
        if self._socket is not None:
            self._socket.close()

    def _leave(self) -> None:
        """Leave the connection to the process that opened it, without a word to the server."""
        self.is_cut = True
        with contextlib.suppress(OSError):
            self.close()

    def cut(self) -> None:
        """End the connection while another thread waits for it, which wakes."""
        self.is_cut = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Of the plain socket: that of TLS would first forget its state, in use elsewhere.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    @property
    def is_fresh(self) -> bool:
        """Whether it is of use for another request: nothing has come since the last answer."""
        if self.is_cut or self._state.our_state is not self._h11.IDLE:
            return False
        if time.monotonic() - self._idle_since > _IDLE_SECONDS:
            return False
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return not poll.poll(0)

    def answer(
        self,
        method: str,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        timeout: float,
        cancellation: Cancellation,
    ) -> DirectAnswer:
        """Send a request, and return what is answered; the body is still to come."""
        self._cancellation, self._timeout = cancellation, timeout
        request = self._h11.Request(method=method.encode(), target=target, headers=headers)
        data = [self._state.send(request), self._state.send(self._h11.EndOfMessage())]
        with _told_late("WriteTimeout"):
            self._socket.sendall(b"".join(each or b"" for each in data))
        while True:
            event = self._event()
            if isinstance(event, self._h11.Response):
                return DirectAnswer(self, event)

    def _event(self) -> Any:
        """Return what the server says next."""
        while True:
            event = self._state.next_event()
            if event is not self._h11.NEED_DATA:
                return event
            data = self._received(_READ)
            if not data and self._state.their_state is self._h11.SEND_RESPONSE:
                problem = "Server disconnected without sending a response."
                raise self._h11.RemoteProtocolError(problem)
            self._state.receive_data(data)

    def _received(self, n_bytes: int) -> bytes:
        """Wait for bytes, and return those that have come."""
        data: bytes = self._waited(lambda: self._socket.recv(n_bytes))
        return data

    def _waited(self, receive: Callable[[], Result]) -> Result:
        """Return what is received; look around until something is."""
        end = time.monotonic() + self._timeout
        while True:
            self._cancellation.look()
            try:
                return receive()
            except TimeoutError:
                if time.monotonic() >= end:
                    raise SourceError("no answer in time (ReadTimeout)", kind="late") from None
            except OSError as error:
                raise SourceError(with_kind(error)) from traced(error)

    def body(self) -> Iterator[bytes]:
        """Yield the body of the answer, which h11 measures."""
        while isinstance(event := self._event(), self._h11.Data):
            yield bytes(event.data)
        if self._state.trailing_data[0]:
            raise SourceError("it gives more bytes than it says", kind="other-bytes")
        self._begin_again()

    def _begin_again(self) -> None:
        """Be of use for another request, if the server keeps the connection."""
        done = self._h11.DONE
        if self._state.our_state is done and self._state.their_state is done:
            self._state.start_next_cycle()
            self._idle_since = time.monotonic()

    def large_body(self, n_bytes: int) -> Iterator[bytes]:
        """Yield a body of so many bytes as it comes; then the connection is of no use to others."""
        event = self._event()
        while isinstance(event, self._h11.Data):
            n_bytes -= len(event.data)
            yield bytes(event.data)
            event = self._state.next_event()
        blocks = _Blocks()
        while n_bytes > 0:
            block = blocks.unused()[: min(n_bytes, _PIECE)]
            n_here = self._fill(block)
            if not n_here:
                raise SourceError(f"the connection ended {n_bytes} bytes too early")
            n_bytes -= n_here
            yield cast("bytes", block[:n_here])  # which has them, and is all that is asked for

    def _fill(self, block: memoryview) -> int:
        """Take what comes until a block is full, or for a short while; return how much that is."""
        at: int = self._waited(lambda: self._socket.recv_into(block))
        end = time.monotonic() + _TICK
        while 0 < at < len(block) and time.monotonic() < end:
            try:
                n_more: int = self._socket.recv_into(block[at:])
            except OSError:  # it is slow, or broken, as the next wait for it tells
                break
            if not n_more:
                break
            at += n_more
        return at


class _Blocks:
    """Memory that is used again once nobody else has it: fresh memory is as slow as the network."""

    def __init__(self) -> None:
        self._blocks: list[bytearray] = []

    def unused(self) -> memoryview:
        """Return a block that is in use nowhere."""
        for at in range(len(self._blocks)):
            if sys.getrefcount(self._blocks[at]) == _UNUSED:
                return memoryview(self._blocks[at])
        self._blocks.append(bytearray(_PIECE))
        return memoryview(self._blocks[-1])


def _references() -> int:
    """Return how many there are to what is in nothing but a list, as the interpreter counts."""
    blocks = [bytearray(1)]
    return sys.getrefcount(blocks[0])


_UNUSED = _references()


@contextlib.contextmanager
def _told_late(kind: str) -> Iterator[None]:
    """Tell of what takes too long as `_web` does."""
    try:
        yield
    except TimeoutError as error:
        raise SourceError(f"no answer in time ({kind})", kind="late") from error
