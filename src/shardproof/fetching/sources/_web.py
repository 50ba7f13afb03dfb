"""Requests over HTTP, by httpx, whose answers are believed only as far as they agree."""

import contextlib
import contextvars
import functools
import itertools
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shardproof._base.messages import plain, quoted, shown, told, traced, with_kind
from shardproof.errors import SourceError
from shardproof.fetching.sources._forks import begin_in_forks
from shardproof.fetching.sources._pages import begins_as_page, is_page, is_too_short
from shardproof.fetching.sources._retry_after import seconds_to_wait
from shardproof.fetching.sources._source import Cut, Delivery, RemoteFile
from shardproof.fetching.sources._urls import bare

if TYPE_CHECKING:
    import ssl

    import httpx

__all__ = ["Web", "is_sendable", "refuse_unsendable"]

_MAX_REDIRECTS = 10
_MAX_PORT = 2**16 - 1
_SHORT = 2**16  # bytes of a redirect that are read, since that keeps the connection
_LARGE = 4 * 2**20
_PIECE = 2**18
_LATER = {408, 425, 429}  # of 4xx, those that say: not now (RFC 9110, RFC 8470, RFC 6585)
_ENTITY_TAG = re.compile(r'"[ -~]{1,1000}"')  # one that can be sent back
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")  # RFC 9110, 5.1
_HEADER_VALUE = re.compile(r"([!-~]+([ \t]+[!-~]+)*)?")  # RFC 9110, 5.5, of which ASCII
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.ASCII)
# Of a connection, of one through a proxy, or through one that speaks SOCKS.
_OPENED = (".connect_tcp.complete", ".start_tls.complete")

_is_sending = contextvars.ContextVar("_is_sending", default=False)


class _OfOurRequests(logging.Filter):
    """Keeps what the libraries log of our requests: whole addresses, with signatures in them.

    Addresses and headers are logged while a request is sent, by whatever thread; in threads of our
    own there is nothing else that anybody has asked for.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        is_ours = (record.threadName or "").startswith("shardproof-")
        return not (is_ours or _is_sending.get())


_SILENT = _OfOurRequests()


def _log_no_secrets() -> None:
    parts = ("connection", "http11", "proxy", "socks")
    for name in ("httpx", *(f"httpcore.{part}" for part in parts)):
        logging.getLogger(name).addFilter(_SILENT)


def is_sendable(value: str) -> bool:
    """Whether a header may have this value: visible ASCII, with blanks only in between."""
    return _HEADER_VALUE.fullmatch(value) is not None


def refuse_unsendable(headers: Mapping[str, str]) -> None:
    """Raise for a header that can't be sent; its value may be a secret, and is not told.

    Raises:
        ValueError: What is wrong with which header.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"headers: expected the name of a header, found {quoted(name)}")
        if not is_sendable(value):
            problem = f"expected visible ASCII characters in the value of {quoted(name)}"
            raise ValueError(f"headers: {problem}, with blanks only between them, found others")


class Web:
    """Connections to web servers, each of which can be cut from another thread.

    A process that is forked has none of them, and opens its own.

    Args:
        headers: Sent along to the host that is asked first, and to no other.
    """

    def __init__(self, headers: Callable[[], Mapping[str, str]]) -> None:
        _log_no_secrets()
        self._headers = headers
        self._begin()
        begin_in_forks(self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Line] = []

    def stat(self, address: str, name: str, *, timeout: float, cut: Cut | None) -> RemoteFile:
        """Return what a HEAD request tells; of a refusal, nothing."""
        with self._response("HEAD", address, {}, timeout, cut) as response:
            response.read()  # nothing; but it keeps the connection
            if response.status_code != 200:
                if response.status_code >= 500 or response.status_code in _LATER:
                    _refuse(response, address)
                return RemoteFile(name)
            # Some answer HEAD with a length of 0, whatever the file is.
            size = _length(response) or None
            ranges = response.headers.get("accept-ranges", "").strip().lower() == "bytes"
            return RemoteFile(name, size, _identity(response), ranges=ranges)

    @contextlib.contextmanager
    def read(
        self,
        address: str,
        name: str,
        start: int,
        stop: int | None,
        known: RemoteFile | None,
        *,
        timeout: float,
        cut: Cut | None,
    ) -> Iterator[Delivery]:
        """Ask for a file, or a part of it, and hand its bytes over as they come."""
        headers = {}
        if start or stop is not None:
            headers["Range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
            if known is not None and known.identity is not None:
                headers["If-Range"] = _sendable(known.identity)
        with self._response("GET", address, headers, timeout, cut) as response:
            _refuse_encoded(response)
            if response.status_code == 206 and headers:
                yield _part(response, name, start, stop)
            elif response.status_code == 200:
                yield _whole(response, name)
            else:
                _refuse(response, address)

    def text(
        self,
        address: str,
        max_bytes: int,
        *,
        form: Mapping[str, str] | None = None,
        timeout: float,
        cut: Cut | None,
    ) -> tuple[bytes, str | None]:
        """Return a short text, and the address of what follows it (RFC 8288); a form is posted."""
        method = "GET" if form is None else "POST"
        with self._response(method, address, {}, timeout, cut, form=form) as response:
            _refuse_encoded(response)
            if response.status_code != 200:
                _refuse(response, address, response.headers.get("x-error-code", ""))
            body = bytearray()
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > max_bytes:
                    raise SourceError(f"expected at most {max_bytes} bytes, found more", again="no")
            return bytes(body), response.links.get("next", {}).get("url")

    @contextlib.contextmanager
    def _response(
        self,
        method: str,
        address: str,
        headers: dict[str, str],
        timeout: float,
        cut: Cut | None,
        *,
        form: Mapping[str, str] | None = None,
    ) -> "Iterator[httpx.Response]":
        with self._line() as line, (cut or Cut()).by(line.cut), _translated():
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
        line = line or _new_line()
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
            self._free.clear()


class _Line:
    """A client for one request at a time, and the sockets that it has opened."""

    def __init__(self) -> None:
        import httpx  # noqa: PLC0415 - only what talks to servers needs it

        self.client = httpx.Client(verify=_trusted(), event_hooks={"request": [self._check]})
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
            response = self._send(request, auth)
            if response.next_request is None:
                return response
            _pass_over(response)
            request = response.next_request
        problem = f"it leads nowhere: more than {_MAX_REDIRECTS} redirects"
        raise SourceError(problem, again="once", keep=False)

    def _send(self, request: "httpx.Request", auth: "httpx.Auth | None") -> "httpx.Response":
        token = _is_sending.set(True)
        try:
            return self.client.send(request, stream=True, auth=auth, follow_redirects=False)
        finally:
            _is_sending.reset(token)

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of each socket; httpx calls this while it works (extension "trace")."""
        if event.endswith(_OPENED):
            still_open = [each for each in self._sockets if each.fileno() >= 0]
            self._sockets = [*still_open, info["return_value"].get_extra_info("socket")]
            if self.is_cut:  # while it was being opened
                self.cut()

    def cut(self) -> None:
        """End every connection, and any that is opened later: who waits for one wakes up."""
        self.is_cut = True
        for each in list(self._sockets):
            with contextlib.suppress(OSError):
                # Of the plain socket: that of TLS would first forget its state, in use elsewhere.
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    def _check(self, request: "httpx.Request") -> None:
        """Before each request, those of a redirect too."""
        port = request.url.port or 0
        if port > _MAX_PORT:  # the C library would take the lowest 16 bits of it
            problem = f"it leads nowhere: expected a port up to {_MAX_PORT}, found {port}"
            raise SourceError(problem, again="once", keep=False)
        here = _origin(request.url)
        if here == self.origin:
            return
        if here[0] != "https" and self.origin[0] == "https":
            raise SourceError("it leads from https to http", again="once")
        for name in self.private:
            request.headers.pop(name, None)


def _new_line() -> _Line:
    """Return a line as the environment has it: proxies, certificates."""
    import httpx  # noqa: PLC0415

    try:
        return _Line()
    except ImportError as error:
        raise SourceError(with_kind(error), again="no") from traced(error)
    except (ValueError, httpx.InvalidURL) as error:
        # Its text may hold the address of a proxy, and that one a password.
        problem = "expected addresses in HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY"
        problem = f"{problem}, found others ({type(error).__name__})"
        raise SourceError(problem, again="no") from traced(ValueError(problem))


def _pass_over(response: "httpx.Response") -> None:
    """Have done with an answer: a short body is read, which keeps the connection."""
    n_bytes = 0
    with contextlib.closing(response):
        for chunk in response.iter_raw():
            n_bytes += len(chunk)
            if n_bytes > _SHORT:
                return


def _origin(url: "httpx.URL") -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@functools.cache
def _trusted() -> "ssl.SSLContext":
    """Whose certificates are believed; loading them takes longer than most requests."""
    import httpx  # noqa: PLC0415

    return httpx.create_ssl_context()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turn the errors of the library into ours, and those that it did not foresee.

    What a server says may make it raise anything: an IDNAError for a host, a ValueError for an
    address, what its cookies raise.
    """
    import httpcore  # noqa: PLC0415
    import httpx  # noqa: PLC0415

    try:
        yield
    except (SourceError, OSError):
        raise
    except (httpcore.TimeoutException, httpx.TimeoutException) as error:
        raise SourceError(f"no answer in time ({type(error).__name__})", late=True) from traced(
            error
        )
    except (httpx.LocalProtocolError, UnicodeEncodeError) as error:
        # Both may hold the value of a header, which may be a secret.
        problem = "the request can't be sent: HTTP does not allow a header of it, it seems"
        raise SourceError(f"{problem} ({type(error).__name__})", again="once") from None
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        problem = f"it leads nowhere: {plain(told(error))}"
        raise SourceError(problem, again="once", keep=False) from traced(error)
    except Exception as error:
        raise SourceError(with_kind(error)) from traced(error)


def _refuse(response: "httpx.Response", address: str, code: str = "") -> None:
    """Raise what the status means; some servers have a code of their own for it."""
    status = response.status_code
    problem = f"'{shown(bare(address))}' answers {status} {plain(response.reason_phrase)}".rstrip()
    if code:
        problem += f" ({quoted(code)})"
    if status in {401, 403}:
        problem += ": credentials are missing, wrong or not enough"
    if status in {206, 416}:
        raise SourceError(f"{problem}, to a request for bytes it should have", keep=False)
    is_for_now = status >= 500 or status in _LATER
    raise SourceError(
        problem,
        again="yes" if is_for_now else "once",
        retry_after=seconds_to_wait(response.headers.get("retry-after")) if is_for_now else None,
    )


def _refuse_encoded(response: "httpx.Response") -> None:
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        problem = (
            f"asked for bytes as they are, it says that they are encoded: {quoted(encoding, 20)}"
        )
        raise SourceError(problem, keep=False)


def _whole(response: "httpx.Response", name: str) -> Delivery:
    size = _length(response)
    chunked = "transfer-encoding" in response.headers
    chunks = _chunks(response, size)
    first = _first(chunks)
    return Delivery(
        file=RemoteFile(name, size, _identity(response)),
        start=0,
        stop=size,
        chunks=itertools.chain([first], chunks),
        framed=size is not None or chunked,
        is_page=_is_page(response, name) or begins_as_page(first, name),
        has_parts=response.headers.get("accept-ranges", "").strip().lower() != "none",
    )


def _first(chunks: Iterator[bytes]) -> bytes:
    """Take so many bytes as tell whether a page begins with them; most often the first piece."""
    first = next(chunks, b"")
    while is_too_short(first) and (more := next(chunks, b"")):
        first += more
    return first


def _part(response: "httpx.Response", name: str, start: int, stop: int | None) -> Delivery:
    said = response.headers.get("content-range", "")
    found = _CONTENT_RANGE.fullmatch(said.strip())
    if found is None:
        raise SourceError(f"which bytes it gives can't be read: {quoted(said)}", keep=False)
    first, last = int(found[1]), int(found[2])
    size = None if found[3] == "*" else int(found[3])
    if first != start or last < first or last >= (stop or 10**18) or last >= (size or 10**18):
        wanted = f"bytes {start}-{'' if stop is None else stop - 1}"
        raise SourceError(f"asked for {wanted}, it gives {quoted(said)}", keep=False)
    n_bytes = last + 1 - first
    if (length := _length(response)) not in {None, n_bytes}:
        problem = f"it gives {quoted(said)}, and says that these are {length} bytes"
        raise SourceError(problem, keep=False)
    file = RemoteFile(name, size, _identity(response))
    chunks = _no_more(_chunks(response, n_bytes), n_bytes)
    return Delivery(file, first, last + 1, chunks, is_page=_is_page(response, name))


def _no_more(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """Whoever asked takes what it asked for, and would not see that more comes."""
    for chunk in chunks:
        n_bytes -= len(chunk)
        if n_bytes < 0:
            raise SourceError("it gives more bytes than it says", keep=False)
        yield chunk


def _is_page(response: "httpx.Response", name: str) -> bool:
    return is_page(response.headers.get("content-type", ""), name)


def _chunks(response: "httpx.Response", n_bytes: int | None) -> Iterator[bytes]:
    """The body as it comes; a large one of a known length straight from its connection.

    The library takes 64 KiB at a time through three layers, which costs more than fetching them.
    After the first piece of a body nothing is left in those layers (h11 hands on all that it has),
    so the rest is what comes next. The connection is of no use to others after that.
    """
    is_plain = response.http_version == "HTTP/1.1" and "transfer-encoding" not in response.headers
    if n_bytes is None or n_bytes < _LARGE or not is_plain:
        return response.iter_raw()
    return _straight(response, n_bytes)


def _straight(response: "httpx.Response", n_bytes: int) -> Iterator[bytes]:
    pieces = response.iter_raw()  # as long as it lives, the connection does
    chunk = next(pieces, b"")
    connection = response.extensions["network_stream"]
    timeout = response.request.extensions["timeout"]["read"]
    while chunk:
        yield chunk
        n_bytes -= len(chunk)
        chunk = connection.read(min(n_bytes, _PIECE), timeout) if n_bytes > 0 else b""
    if n_bytes:
        raise SourceError(f"the connection ended {n_bytes} bytes too early")


def _length(response: "httpx.Response") -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _identity(response: "httpx.Response") -> str | None:
    """The entity tag, if it is strong: a weak one may outlast a change (RFC 9110, 8.8.1)."""
    tag = response.headers.get("etag", "")
    return tag if _ENTITY_TAG.fullmatch(tag) else None


def _sendable(identity: str) -> str:
    if not _ENTITY_TAG.fullmatch(identity):
        raise SourceError(f"no entity tag of it is known, but {quoted(identity, 40)}", keep=False)
    return identity
