"""Send requests over HTTP, by httpx, and believe the answers only as far as they agree."""

import contextlib
import contextvars
import functools
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.request import getproxies

from shardproof._base.messages import plain, quoted, told, traced, with_kind
from shardproof.errors import SourceError
from shardproof.fetching.sources._answers import (
    LATER,
    identity_of,
    length_of,
    part_of,
    ranges_of,
    refuse_encoded,
    refuse_status,
    sendable_tag,
    whole_of,
)
from shardproof.fetching.sources._direct import DirectAnswer, DirectLine, Origin
from shardproof.fetching.sources._source import (
    Cancellation,
    NotConnectedError,
    ReadRequest,
    RemoteFile,
    Response,
    Watch,
    begin_in_forks,
)

if TYPE_CHECKING:
    import ssl

    import httpx

_MAX_REDIRECTS = 10
_MAX_PORT = 2**16 - 1
_NO_SUCH_METHOD = 501  # RFC 9110, 15.6.2: what a server without HEAD says
_PORTS = {"http": 80, "https": 443}
_PLAIN = re.compile(r"[A-Za-z0-9_~%-][A-Za-z0-9._~%-]*")  # as `below` quotes a name, and no ".."
_SHORT = 2**16  # bytes of a redirect that are read, since that keeps the connection
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")  # RFC 9110, 5.1
_HEADER_VALUE = re.compile(r"([!-~]+([ \t]+[!-~]+)*)?")  # RFC 9110, 5.5, of which ASCII
# Of a connection, of one through a proxy, or through one that speaks SOCKS.
_OPENED = (".connect_tcp.complete", ".start_tls.complete")
_LOGGERS = ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "proxy", "socks")))

_is_sending = contextvars.ContextVar("_is_sending", default=False)


class _OfOurRequests(logging.Filter):
    """Holds back what the libraries log of our requests: addresses with signatures in them."""

    def filter(self, record: logging.LogRecord) -> bool:
        is_ours = (record.threadName or "").startswith("shardproof-")
        return not (is_ours or _is_sending.get())


_SILENT = _OfOurRequests()


def is_sendable(value: str) -> bool:
    """Whether a header may have this value: visible ASCII, with blanks only in between."""
    return _HEADER_VALUE.fullmatch(value) is not None


def refuse_unsendable(headers: Mapping[str, str]) -> None:
    """Raise ValueError for a header that can't be sent; its value, maybe a secret, is left out."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"headers: expected the name of a header, found {quoted(name)}")
        if not is_sendable(value):
            problem = f"expected visible ASCII characters in the value of {quoted(name)}"
            raise ValueError(f"headers: {problem}, with blanks only between them, found others")


class Web:
    """Connections to web servers, each of which can be cut from another thread.

    A process that is forked has none of them, and opens its own. ``headers`` are sent along to the
    host that is asked first, and to no other. Files are asked for directly (`DirectLine`), unless
    ``leads``: then answers are known to lead elsewhere.
    """

    def __init__(self, headers: Callable[[], Mapping[str, str]], *, leads: bool = False) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(_SILENT)
        self._headers, self._leads = headers, leads
        self._begin()
        begin_in_forks(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Line] = []
        self._direct: list[DirectLine] = []

    def stat(
        self, address: str, name: str, *, timeout: float, cancellation: Cancellation | None
    ) -> RemoteFile:
        """Return what a HEAD request tells; of a refusal, nothing."""
        with self._answer("HEAD", address, {}, timeout, cancellation) as response:
            _read_short(response)  # nothing; but it keeps the connection
            if response.status_code != 200:
                is_passing = response.status_code >= 500 and response.status_code != _NO_SUCH_METHOD
                if is_passing or response.status_code in LATER:
                    refuse_status(response, address)
                return RemoteFile(name)
            # Some answer HEAD with a length of 0, whatever the file is.
            size = length_of(response) or None
            has_ranges = ranges_of(response) == "bytes"
            return RemoteFile(name, size, identity_of(response), has_ranges=has_ranges)

    @contextlib.contextmanager
    def read(
        self, address: str, request: ReadRequest, cancellation: Cancellation | None
    ) -> Iterator[Response]:
        """Ask for a file, or a part of it, and hand its bytes over as they come."""
        start, stop, known = request.start, request.stop, request.known
        headers = {}
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
            if known is not None and known.identity is not None:
                headers["If-Range"] = sendable_tag(known.identity)
        with self._answer("GET", address, headers, request.timeout, cancellation) as response:
            refuse_encoded(response)
            if response.status_code == 206 and headers:
                yield part_of(response, request)
            elif response.status_code == 200:
                yield whole_of(response, request.name)
            else:
                refuse_status(response, address)

    def text(
        self,
        address: str,
        max_bytes: int,
        *,
        form: Mapping[str, str] | None = None,
        timeout: float,
        cancellation: Cancellation | None,
    ) -> tuple[bytes, str | None]:
        """Return a short text, and the address of what follows it (RFC 8288); a form is posted."""
        method = "GET" if form is None else "POST"
        with self._response(method, address, {}, timeout, cancellation, form=form) as response:
            refuse_encoded(response)
            if response.status_code != 200:
                refuse_status(response, address, response.headers.get("x-error-code", ""))
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > max_bytes:
                    problem = f"expected at most {max_bytes} bytes, found more"
                    raise SourceError(problem, kind="unusable")
            return bytes(body), response.links.get("next", {}).get("url")

    @contextlib.contextmanager
    def _answer(
        self,
        method: str,
        address: str,
        headers: dict[str, str],
        timeout: float,
        cancellation: Cancellation | None,
    ) -> "Iterator[httpx.Response | DirectAnswer]":
        """Ask over a direct line; where that leads elsewhere, or can't be, through the library."""
        wait = cancellation or Cancellation()
        direct = None if self._leads else _direct_address(address)
        if direct is not None and (self._direct or not _has_proxies()):
            with self._direct_line(direct[0], timeout, wait) as line, _translated():
                sent = self._sent_along(direct[0], headers)
                answer = line.answer(method, direct[1], sent, timeout, wait)
                if not answer.leads_elsewhere:
                    yield answer
                    return
            self._leads = True
        if isinstance(wait, Watch) and wait.is_of_this_thread:
            raise NotConnectedError
        with self._response(method, address, headers, timeout, cancellation) as response:
            yield response

    def _sent_along(self, origin: Origin, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
        import httpx  # noqa: PLC0415

        host = f"[{origin.host}]" if ":" in origin.host else origin.host
        is_usual = origin.port == _PORTS[origin.scheme]
        every = {
            "Host": host if is_usual else f"{host}:{origin.port}",
            "Accept": "*/*",
            "Connection": "keep-alive",
            "User-Agent": f"python-httpx/{httpx.__version__}",
            "Accept-Encoding": "identity",
        }
        given = {**self._headers(), **headers}
        names = {name.lower() for name in given}
        sent = {name: value for name, value in every.items() if name.lower() not in names}
        return [(k.encode(), v.encode("ascii")) for k, v in {**sent, **given}.items()]

    @contextlib.contextmanager
    def _direct_line(
        self, origin: Origin, timeout: float, wait: Cancellation
    ) -> Iterator[DirectLine]:
        line = self._free_line() or DirectLine(origin)
        if not line.is_connected and isinstance(wait, Watch) and wait.is_of_this_thread:
            raise NotConnectedError
        try:
            with wait.register(line.cut):
                if not line.is_connected:
                    with _translated():
                        line.connect(_trusted() if origin.scheme == "https" else None, timeout)
                yield line
        except BaseException:
            line.close()
            raise
        if not line.is_fresh:
            line.close()
            return
        with self._lock:
            self._direct.append(line)

    def _free_line(self) -> DirectLine | None:
        """Return a line that is open, and of use."""
        while True:
            with self._lock:
                if not self._direct:
                    return None
                line = self._direct.pop()
            if line.is_fresh:
                return line
            line.close()

    @contextlib.contextmanager
    def _response(
        self,
        method: str,
        address: str,
        headers: dict[str, str],
        timeout: float,
        cancellation: Cancellation | None,
        *,
        form: Mapping[str, str] | None = None,
    ) -> "Iterator[httpx.Response]":
        cancellation = cancellation or Cancellation()
        with self._line() as line, cancellation.register(line.cut), _translated():
            request = line.client.build_request(
                method,
                address,
                headers={"Accept-Encoding": "identity", **self._headers(), **headers},
                data=form,
                timeout=timeout,
                extensions={"trace": line.trace},
            )
            line.origin = _origin(request.url)
            line.private = set(self._headers())
            response = line.answer(request)
            try:
                yield response
            finally:
                response.close()

    @contextlib.contextmanager
    def _line(self) -> "Iterator[_Line]":
        with self._lock:
            line = self._free.pop() if self._free else None
        line = line or _Line()
        try:
            yield line
        except BaseException:
            line.client.close()
            raise
        if line.is_cut:
            line.client.close()
            return
        line.client.cookies.clear()  # a server may set others each time, without end
        with self._lock:
            self._free.append(line)

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            for line in self._free:
                line.client.close()
            for direct in self._direct:
                direct.close()
            self._free.clear()
            self._direct.clear()


class _Line:
    """A client for one request at a time, and the sockets that it has opened."""

    def __init__(self) -> None:
        import httpx  # noqa: PLC0415 - only what talks to servers needs it

        try:
            self.client = httpx.Client(verify=_trusted(), event_hooks={"request": [self._check]})
        except ImportError as error:
            raise SourceError(with_kind(error), kind="unusable") from traced(error)
        except (ValueError, httpx.InvalidURL) as error:
            # Its text may hold the address of a proxy, and that one a password.
            problem = "expected addresses in HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY"
            problem = f"{problem}, found others ({type(error).__name__})"
            raise SourceError(problem, kind="unusable") from traced(ValueError(problem))
        self.origin: tuple[str, str, int | None] = ("", "", None)
        self.private: set[str] = set()
        self._sockets: list[Any] = []
        self.is_cut = False
        begin_in_forks(self._leave)

    def _leave(self) -> None:
        """Leave the sockets to the process that opened them, without a word to the server."""
        self.is_cut = True
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.close()

    def answer(self, request: "httpx.Request") -> "httpx.Response":
        """Send a request, and where it is led; the answer that leads nowhere else is still unread.

        The library would follow too, but keeps all of each redirect in memory, decoded.
        """
        import httpx  # noqa: PLC0415

        # A user and a password count in the first address alone: servers have made the others.
        for auth in (None, *[httpx.Auth()] * _MAX_REDIRECTS):
            token = _is_sending.set(True)
            try:
                response = self.client.send(request, stream=True, auth=auth, follow_redirects=False)
            finally:
                _is_sending.reset(token)
            if response.next_request is None:
                return response
            n_bytes = 0
            with contextlib.closing(response):  # a short body is read: that keeps the connection
                for chunk in response.iter_raw():
                    n_bytes += len(chunk)
                    if n_bytes > _SHORT:
                        break
            request = response.next_request
        problem = f"it leads nowhere: more than {_MAX_REDIRECTS} redirects"
        raise SourceError(problem, kind="astray")

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of each socket; httpx calls this while it works (extension "trace")."""
        if event.endswith(_OPENED):
            still_open = [each for each in self._sockets if each.fileno() >= 0]
            self._sockets = [*still_open, info["return_value"].get_extra_info("socket")]
            if self.is_cut:  # while it was being opened
                self.cut()

    def cut(self) -> None:
        """End every connection, and any that is opened later; a thread that waits for one wakes."""
        self.is_cut = True
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                # Of the plain socket: that of TLS would first forget its state, in use elsewhere.
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    def _check(self, request: "httpx.Request") -> None:
        """Refuse a request that leads astray, a redirect's too; send no header to another host."""
        port = request.url.port or 0
        if port > _MAX_PORT:  # the C library would take the lowest 16 bits of it
            problem = f"it leads nowhere: expected a port up to {_MAX_PORT}, found {port}"
            raise SourceError(problem, kind="astray")
        here = _origin(request.url)
        if here == self.origin:
            return
        if here[0] != "https" and self.origin[0] == "https":
            raise SourceError("it leads from https to http", kind="refused")
        for name in self.private:
            request.headers.pop(name, None)


def _origin(url: "httpx.URL") -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _direct_address(address: str) -> tuple[Origin, bytes] | None:
    """Return whom to ask, and for what; None if that takes more than a connection."""
    folder, slash, last = address.rpartition("/")
    if not _PLAIN.fullmatch(last) or "?" in folder:
        return _direct_folder(address)
    found = _direct_folder(f"{folder}{slash}")
    return found and (found[0], found[1] + last.encode())


def _has_proxies() -> bool:
    return any(kind != "no" for kind in getproxies())  # of whom none is for some hosts


@functools.lru_cache(maxsize=100)
def _direct_folder(address: str) -> tuple[Origin, bytes] | None:
    import httpx  # noqa: PLC0415

    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, ValueError):
        return None  # which tells why
    port = url.port or _PORTS.get(url.scheme, 0)
    if url.userinfo or not 0 < port <= _MAX_PORT:
        return None
    return Origin(url.scheme, url.raw_host.decode("ascii"), port), url.raw_path


def _read_short(response: "httpx.Response | DirectAnswer") -> None:
    for _ in response.chunks(None) if isinstance(response, DirectAnswer) else response.iter_raw():
        pass


@functools.cache
def _trusted() -> "ssl.SSLContext":
    """Return the certificates that are believed; loading them takes longer than most requests."""
    import httpx  # noqa: PLC0415

    return httpx.create_ssl_context()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn the library's errors into ours: what a server says may make it raise anything."""
    import h11  # noqa: PLC0415
    import httpcore  # noqa: PLC0415
    import httpx  # noqa: PLC0415

    try:
        yield
    except OSError:  # a `SourceError` is one
        raise
    except (httpcore.TimeoutException, httpx.TimeoutException) as error:
        problem = f"no answer in time ({type(error).__name__})"
        raise SourceError(problem, kind="late") from traced(error)
    except (h11.LocalProtocolError, httpx.LocalProtocolError, UnicodeEncodeError) as error:
        # Both may hold the value of a header, which may be a secret.
        problem = "the request can't be sent: HTTP does not allow a header of it, it seems"
        raise SourceError(f"{problem} ({type(error).__name__})", kind="refused") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        problem = f"it leads nowhere: {plain(told(error))}"
        raise SourceError(problem, kind="astray") from traced(error)
    except Exception as error:
        raise SourceError(with_kind(error)) from traced(error)
