"""Connections whose waits are short: between two of them a request is asked whether to go on.

httpcore, the engine of httpx, lets its user open the connections, and hands the timeouts of a
request over to them as they are. So each timeout here is a `Patience`, which knows what to ask. No
other thread has to cut a connection that nobody waits for any more, and a file takes no thread.
"""

import contextlib
import encodings.idna  # noqa: F401 - for names of hosts; a thread that looks one up imports nothing
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self

import httpcore

from shardproof._base.messages import told
from shardproof._base.work import Settled, settle

if TYPE_CHECKING:
    import ssl

_STEP = 0.05  # seconds between two questions
_NUMERIC = socket.NI_NUMERICHOST | socket.NI_NUMERICSERV


class Patience(float):
    """Seconds for one wait, and what raises an error meanwhile where nobody waits."""

    check: Callable[[], None]

    def __new__(cls, seconds: float, check: Callable[[], None]) -> Self:
        self = super().__new__(cls, seconds)
        self.check = check
        return self


class Network(httpcore.NetworkBackend):
    """Opens connections for httpcore, and knows those that are open."""

    def __init__(self) -> None:
        self._plain = httpcore.SyncBackend()
        self._open: weakref.WeakSet[PatientConnection] = weakref.WeakSet()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Open a connection."""
        assert isinstance(timeout, Patience)  # noqa: S101 - as each request of ours has it

        def connected() -> httpcore.NetworkStream:
            """Connect to the first address that answers in its equal share of the time."""
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                hosts = dict.fromkeys(socket.getnameinfo(each[4], _NUMERIC)[0] for each in found)
            except OSError as error:
                raise httpcore.ConnectError(told(error)) from error
            *others, last = ((each, port, timeout / len(hosts), *options) for each in hosts)
            for each in others:  # as of a network without a way for IPv6
                with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                    return self._plain.connect_tcp(*each)
            return self._plain.connect_tcp(*last)

        options = local_address, socket_options
        connection = PatientConnection(_in_thread(connected, timeout), timeout)
        self._open.add(connection)
        return connection

    def leave(self) -> None:
        """Close all connections here, without a word to the servers: another process has them."""
        for connection in tuple(self._open):
            with contextlib.suppress(OSError):
                connection.close()


class PatientConnection(httpcore.NetworkStream):
    """A connection, or what is encrypted in one."""

    def __init__(self, stream: httpcore.NetworkStream, patience: Patience) -> None:
        self._stream, self._patience = stream, patience

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return bytes as they come."""
        patience = timeout if isinstance(timeout, Patience) else self._patience
        end, left = time.monotonic() + patience, float(patience)
        while True:
            patience.check()
            try:
                return self._stream.read(max_bytes, min(_STEP, left))
            except httpcore.ReadTimeout:
                left = end - time.monotonic()
                if left <= 0:
                    raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes: those of a request, for which a connection has room."""
        self._stream.write(buffer, self._patience if timeout is None else timeout)

    def start_tls(
        self,
        ssl_context: "ssl.SSLContext",
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        """Encrypt what follows."""
        patience = timeout if isinstance(timeout, Patience) else self._patience
        plain, before = self._stream, self.get_extra_info("socket")
        self._stream = _in_thread(
            lambda: plain.start_tls(ssl_context, server_hostname, patience),
            patience,
            cut=lambda: socket.socket.shutdown(before, socket.SHUT_RDWR),
        )
        return self

    def get_extra_info(self, info: str) -> Any:
        """Return what the stream beneath knows."""
        return self._stream.get_extra_info(info)

    def close(self) -> None:
        """Close it."""
        self._stream.close()


def _in_thread(
    work: Callable[[], httpcore.NetworkStream],
    patience: Patience,
    cut: Callable[[], None] = lambda: None,
) -> httpcore.NetworkStream:
    """Do what can't be waited for in steps in a thread, which is left where nobody waits."""
    outcome: list[Settled[httpcore.NetworkStream]] = []
    is_left = threading.Event()

    def run() -> None:
        outcome.append(settle(work))
        stream = outcome[0].result
        if is_left.is_set() and stream is not None:
            stream.close()

    thread = threading.Thread(target=run, name="shardproof-connect", daemon=True)
    try:
        thread.start()
        while thread.is_alive():
            thread.join(_STEP)
            patience.check()
    except BaseException:
        is_left.set()
        with contextlib.suppress(OSError):
            cut()
        if outcome and outcome[0].result is not None:  # it ended just now
            outcome[0].result.close()
        raise
    return outcome[0].get()
