"""What a server was asked for, and what it sent."""

import dataclasses
import fnmatch
import threading
import types
from collections.abc import Mapping

from shardproof.testing.faults.hub._answers import Incoming
from shardproof.testing.faults.hub._faults import Fault

__all__ = ["HubRequest", "Log", "Tally", "without_secrets"]

_SECRET = {"authorization", "cookie", "proxy-authorization"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubRequest:
    """One line of a hub's log.

    Attributes:
        method: ``"GET"``, ``"HEAD"``, ...
        path: The decoded path, without the slash at its start and without the query.
        file: The name under which what it asks for was put; None if it asks for no file.
        host: What the client calls the server: the Host header.
        headers: All of them, names in lower case. Of credentials there is only that they were
            there: Authorization, Cookie and Proxy-Authorization are ``"(withheld)"``.
        connection: The number of its connection, from 1.
        started: When it came, by `time.monotonic`.
        fault: What it suffered, if anything.
        status: The status of the answer; None if there was no status line.
        bytes_sent: Bytes of the body that were sent when the log was read.
    """

    method: str
    path: str
    file: str | None
    host: str
    headers: Mapping[str, str]
    connection: int
    started: float
    fault: Fault | None
    status: int | None
    bytes_sent: int = 0

    def is_for(self, pattern: str) -> bool:
        """Whether the name of its file or its path matches; see `fnmatch`."""
        names = (self.path, self.path if self.file is None else self.file)
        return any(fnmatch.fnmatchcase(name, pattern) for name in names)


class Tally:
    """How many bytes of one answer's body were handed to the kernel.

    A portion is counted before it is sent, and what was not sent is taken off afterwards: whoever
    has received the last byte finds all of them counted.
    """

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = 0


class Log:
    """All requests, in the order in which they came; may be read while it is written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[tuple[HubRequest, Tally]] = []

    def add(self, request: HubRequest) -> Tally:
        """Add a line, and return where the bytes of its answer are to be counted."""
        tally = Tally()
        with self._lock:
            self._lines.append((request, tally))
        return tally

    def read(self) -> tuple[HubRequest, ...]:
        """Return every line as it stands now."""
        with self._lock:
            lines = list(self._lines)
        return tuple(dataclasses.replace(line, bytes_sent=tally.sent) for line, tally in lines)


def without_secrets(incoming: Incoming) -> Mapping[str, str]:
    """Return the headers of a request; no token gets from them into the output of a test."""
    return types.MappingProxyType(
        {
            name: "(withheld)" if name in _SECRET else value
            for name, value in incoming.headers.items()
        }
    )
