"""Send requests over HTTP: by httpcore, the engine of httpx, over connections of our own.

httpx says what addresses, headers, proxies and certificates are. Its client is left out: it would
read redirects into memory, and takes a third of the time of a small file.
"""

import base64
import contextlib
import contextvars
import functools
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from shardproof._base.messages import plain, quoted, told, traced, with_kind
from shardproof._base.work import begin_in_forks
from shardproof.errors import SourceError
from shardproof.fetching.sources._network import Network, Patience
from shardproof.fetching.sources._source import Cancellation
from shardproof.fetching.sources._urls import bare

_REDIRECTS = {301, 302, 303, 307, 308}
_MAX_REDIRECTS = 10
_SHORT = 2**16
_MAX_PORT = 2**16 - 1
_PORTS = {"http": 80, "https": 443}
_IDLE_SECONDS = 5.0  # after which a connection is not used again: as httpx does
_PLAIN = re.compile(r"[A-Za-z0-9_~%-][A-Za-z0-9._~%-]*")  # as `below` quotes a name, and no ".."
_ALWAYS = {
    "accept": "*/*",
    "connection": "keep-alive",
    "user-agent": f"python-httpx/{httpx.__version__}",
    "accept-encoding": "identity",
}
_Origin = tuple[str, str, int | None]

_is_sending = contextvars.ContextVar("_is_sending", default=False)


def _is_of_others(_: logging.LogRecord) -> bool:
    """Whether what the library logs is not of our requests: their addresses have signatures."""
    return not _is_sending.get()


class _Place(NamedTuple):
    """Whom to ask, and for what."""

    url: httpx.URL  # of the target, or of the folder that it is in
    origin: _Origin
    target: bytes


class WebAnswer(NamedTuple):
    """What a server answers to a request, and the connection by which the body comes."""

    status: int
    line: httpcore.ConnectionInterface
    origin: _Origin
    response: httpcore.Response
    headers: Mapping[str, str]  # by names in lower case; those of several lines are one
    patience: Patience

    def read_short(self) -> None:
        """Read the body, if it is short: that keeps the connection."""
        n_bytes = 0
        for chunk in self.response.iter_stream():
            n_bytes += len(chunk)
            if n_bytes > _SHORT:
                break

    @property
    def following(self) -> str | None:
        """The address of what follows it (RFC 8288)."""
        return httpx.Response(200, headers=self.response.headers).links.get("next", {}).get("url")


class WebClient:
    """Connections to web servers; ``headers`` go along to the host that is asked first alone."""

    def __init__(self, headers: Callable[[], Mapping[str, str]]) -> None:
        for part in ("connection", "http11", "proxy", "socks"):
            logging.getLogger(f"httpcore.{part}").addFilter(_is_of_others)
        self._headers = headers
        self._network = Network()
        self._proxies: Mapping[str, str] | None = None
        self._free: dict[_Origin, list[httpcore.ConnectionInterface]] = {}
        begin_in_forks(self._begin)

    def _begin(self) -> None:
        self._network.leave()
        self._network, self._free = Network(), {}

    @contextlib.contextmanager
    def answer(
        self,
        method: str,
        address: str,
        headers: Mapping[str, str],
        timeout: float,
        cancellation: Cancellation | None,
        *,
        content: bytes = b"",
    ) -> Iterator[WebAnswer]:
        """Yield what is answered, and the unread body; where it leads elsewhere, what that says."""
        patience = Patience(timeout, (cancellation or Cancellation()).raise_if_cancelled)
        answer = None
        try:
            answer = self._followed(method, _place(address), headers, content, patience)
            yield answer
        except OSError:  # a `SourceError` is one
            raise
        except Exception as error:
            translated = _translated(error)
            raise translated from translated.__cause__
        finally:
            if answer is not None:
                self._give_back(answer)

    def _followed(
        self,
        method: str,
        place: _Place,
        headers: Mapping[str, str],
        content: bytes,
        patience: Patience,
    ) -> WebAnswer:
        """Send a request, and where it is led; return the answer that leads nowhere else."""
        first, cookies = place, None
        private = {name.lower(): value for name, value in self._headers().items()}
        if place.url.userinfo:  # it counts here alone: servers make the addresses that follow
            userinfo = f"{place.url.username}:{place.url.password}".encode()
            private["authorization"] = f"Basic {base64.b64encode(userinfo).decode()}"
        for _ in range(_MAX_REDIRECTS + 1):
            given = {**(private if place.origin == first.origin else {}), **headers}
            if cookies is not None:  # of the way alone
                of_way = httpx.Request("GET", place.url, cookies=cookies).headers
                if "cookie" in of_way:
                    given["cookie"] = of_way["cookie"]
            answer = self._sent(method, place, given, content, patience)
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                return answer
            try:
                answer.read_short()
            finally:
                self._give_back(answer)
            if method == "POST" and answer.status not in {307, 308}:
                method, headers, content = "GET", {}, b""
            cookies = httpx.Cookies() if cookies is None else cookies
            request = httpx.Request("GET", place.url)
            cookies.extract_cookies(
                httpx.Response(200, headers=answer.response.headers, request=request)
            )
            place = _following(place, answer.headers["location"])
            if place.url.scheme != "https" and first.url.scheme == "https":
                raise SourceError("it leads from https to http", kind="refused")
        problem = f"it leads nowhere: more than {_MAX_REDIRECTS} redirects"
        raise SourceError(problem, kind="astray")

    def _sent(
        self,
        method: str,
        place: _Place,
        given: Mapping[str, str],
        content: bytes,
        patience: Patience,
    ) -> WebAnswer:
        """Send one request, and return what is answered, whose body is unread."""
        url = place.url
        headers = {**_ALWAYS, "host": url.netloc.decode("ascii"), **given}
        if content:
            headers["content-length"] = str(len(content))
        request = httpcore.Request(
            method,
            httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=place.target
            ),
            headers=[(name.encode(), value.encode("ascii")) for name, value in headers.items()],
            content=content,
            extensions={"timeout": dict.fromkeys(("connect", "read", "write"), patience)},
        )
        line, token = self._line(place), _is_sending.set(True)
        try:
            response = line.handle_request(request)
        except BaseException:
            line.close()
            raise
        finally:
            _is_sending.reset(token)
        said: dict[str, str] = {}
        for raw, value in response.headers:
            name, text = raw.lower().decode("ascii"), value.decode("latin-1")
            said[name] = f"{said[name]}, {text}" if name in said else text
        return WebAnswer(response.status, line, place.origin, response, said, patience)

    def _line(self, place: _Place) -> httpcore.ConnectionInterface:
        """Return a connection for one request."""
        free = self._free.setdefault(place.origin, [])
        with contextlib.suppress(IndexError):
            while (line := free.pop()).has_expired():
                line.close()
            return line
        if self._proxies is None:
            self._proxies = getproxies()
        url = place.url
        proxy = self._proxies.get(url.scheme) or self._proxies.get("all")
        if proxy is not None and proxy_bypass(url.netloc.decode("ascii")):
            proxy = None
        pool = httpcore.ConnectionPool if proxy is None else functools.partial(_through, proxy)
        return pool(
            ssl_context=_trusted(),
            max_connections=None,
            keepalive_expiry=_IDLE_SECONDS,
            network_backend=self._network,
        ).create_connection(
            httpcore.Origin(url.raw_scheme, url.raw_host, url.port or _PORTS[url.scheme])
        )

    def _give_back(self, answer: WebAnswer) -> None:
        """Let a connection be used again, if its answer was read to its end."""
        token = _is_sending.set(True)
        try:
            answer.response.close()
        finally:
            _is_sending.reset(token)
        if answer.line.is_idle():
            self._free.setdefault(answer.origin, []).append(answer.line)
        else:
            answer.line.close()

    def close(self) -> None:
        """Close the connections."""
        for free in tuple(self._free.values()):
            while free:
                free.pop().close()


def _through(proxy: str, **options: Any) -> httpcore.ConnectionPool:
    """Return what connects through a proxy."""
    try:
        given = httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}")
        url = given.url
        where = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=b"/")
        kind = httpcore.SOCKSProxy if url.scheme.startswith("socks") else httpcore.HTTPProxy
        return kind(where, given.raw_auth, **options)
    except RuntimeError as error:
        problem = "a SOCKS proxy takes socksio, which is missing: pip install 'httpx[socks]'"
        raise SourceError(problem, kind="unusable") from traced(ImportError(told(error)))
    except (ValueError, httpx.InvalidURL) as error:
        # Its text may hold the address of a proxy, and that one a password.
        problem = "expected addresses in HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY"
        problem = f"{problem}, found others ({type(error).__name__})"
        raise SourceError(problem, kind="unusable") from traced(ValueError(problem))


def _place(address: str) -> _Place:
    """Return whom to ask for what; most addresses are those of files in one folder."""
    folder, slash, last = address.rpartition("/")
    if _PLAIN.fullmatch(last) and "?" not in folder:
        place = _usable(f"{folder}{slash}")
        return place._replace(target=place.target + last.encode())
    return _usable(address)


def _following(place: _Place, location: str) -> _Place:
    """Return where an answer leads."""
    with contextlib.suppress(UnicodeDecodeError):  # what is no UTF-8 is Latin-1
        location = location.encode("latin-1").decode()
    url = httpx.URL(location)
    if url.scheme and not url.host:
        url = url.copy_with(host=place.url.host)
    return _usable(place.url.join(url))


@functools.lru_cache(maxsize=100)
def _usable(address: str | httpx.URL) -> _Place:
    """Return whom to ask, and for what, if an address can be asked."""
    url = httpx.URL(address)
    if url.scheme not in _PORTS or not url.host:
        raise SourceError(f"it leads nowhere: to {quoted(bare(str(url)))}", kind="astray")
    if (url.port or 0) > _MAX_PORT:  # the C library would take the lowest 16 bits of it
        problem = f"it leads nowhere: expected a port up to {_MAX_PORT}, found {url.port}"
        raise SourceError(problem, kind="astray")
    return _Place(url, (url.scheme, url.host, url.port), url.raw_path)


_trusted = functools.cache(httpx.create_ssl_context)  # takes longer than most requests


def _translated(error: Exception) -> SourceError:
    """Return an error of a library as one of ours; what a server says may make it raise any."""
    if isinstance(error, httpcore.LocalProtocolError | UnicodeEncodeError):
        # Both may hold the value of a header, which may be a secret.
        problem = "the request can't be sent: HTTP does not allow a header of it, it seems"
        return SourceError(f"{problem} ({type(error).__name__})", kind="refused")
    translated = SourceError(with_kind(error))
    if isinstance(error, httpcore.TimeoutException):
        translated = SourceError(f"no answer in time ({type(error).__name__})", kind="late")
    elif isinstance(error, httpx.InvalidURL):
        translated = SourceError(f"it leads nowhere: {plain(told(error))}", kind="astray")
    translated.__cause__ = traced(error)
    return translated
