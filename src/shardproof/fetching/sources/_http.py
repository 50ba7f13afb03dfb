"""Web servers as a source: files below one address, and what else is asked of such servers.

What one answers is believed only as far as it agrees with itself and the request.
"""

import contextlib
import datetime
import email.utils
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from shardproof._base.arguments import checked
from shardproof._base.messages import plain, quoted, shown
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    SendRequest,
    SourceContext,
)
from shardproof.fetching.sources._urls import bare, below, parted, resource_of
from shardproof.fetching.sources._web_index import names_on

if TYPE_CHECKING:
    import httpcore

    from shardproof.fetching.sources._client import WebAnswer

_NO_SUCH_METHOD = 501  # RFC 9110, 15.6.2: what a server without HEAD says
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")  # RFC 9110, 5.1
_HEADER_VALUE = re.compile(r"([!-~]+([ \t]+[!-~]+)*)?")  # RFC 9110, 5.5, of which ASCII
_LATER = {408, 425, 429}  # of 4xx, those that say: not now (RFC 9110, RFC 8470, RFC 6585)
_LARGE = 4 * 2**20
_PIECE = 2**20
_MAX_PAGE = 2**26  # of a folder with some 400 000 files
_MAX_ENTRIES = 1_000_000  # of all folders
_MAX_TEXT = 256 * 2**20  # characters in all of their paths
_ENTITY_TAG = re.compile(r'"[ -~]{1,1000}"')  # one that can be sent back
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)", re.ASCII)
_TYPES = {"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml"}
_ENDINGS = (".htm", ".html", ".xhtml", ".xht")
_BEGINNINGS = (b"<!doctype html", b"<html")
_BEFORE = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s+|<\?xml.*?\?>|<!--.*?-->)*", re.DOTALL)
_MOST_LOOKED_AT = 2**12  # bytes


def is_sendable(value: str) -> bool:
    """Whether a header may have this value: visible ASCII, with blanks only in between."""
    return _HEADER_VALUE.fullmatch(value) is not None


class HttpSource(SourceContext):
    """Files of a web server, below one address.

    A server has no listing: `files` gives what was said here. Redirects are followed, to http and
    https only, and credentials stay with the host that they are for. Proxies and certificates are
    as httpx takes them from the environment. A process that is forked opens connections of its own.

    Args:
        url: The address below which the files are; a query, such as a signature, goes with each
            request and into no message.
        files: What is there: names, or more where more is known.
        headers: Sent along with each request, such as ``{"Authorization": "Bearer ..."}``.

    Raises:
        ValueError: No address of a web server, or a header that can't be sent.

    Example:
        >>> source = HttpSource("https://example.org/shards?signature=abc", files=["0.bin"])
        >>> source.url, [file.name for file in source.files()]
        ('https://example.org/shards', ['0.bin'])
    """

    @checked
    def __init__(
        self,
        url: str,
        files: Sequence[str | RemoteFile] = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        parts = parted(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"url: expected http(s)://host/..., found '{shown(bare(url))}'")
        try:
            parts.port  # noqa: B018 - it is looked at only here
        except ValueError:
            raise ValueError(f"url: expected a port up to 65535 in '{shown(bare(url))}'") from None
        self.url = bare(url)
        self.resource = resource_of(url)
        self._address = url
        self._files = [RemoteFile(file) if isinstance(file, str) else file for file in files]
        given = dict(headers or {})
        for name, value in given.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"headers: expected the name of a header, found {quoted(name)}")
            if not is_sendable(value):  # and left out of the error: it may be a secret
                problem = f"expected visible ASCII characters in the value of {quoted(name)}"
                raise ValueError(f"headers: {problem}, with blanks only between them, found others")
        self._web = Web(lambda: given)

    def files(self) -> Sequence[RemoteFile]:
        """Return what was said to be there."""
        return tuple(self._files)

    def linked(self, send: SendRequest) -> Sequence[RemoteFile]:
        """Return the files to which pages of folders link, of a server that makes such pages."""
        found, todo, n_text = set[str](), [""], 0
        while todo:
            folder = todo.pop()
            page = send(functools.partial(self._page, below(self._address, folder)))
            names = names_on(page.decode(errors="replace"), f"{self.url}/{quote(folder)}")
            new = {folder + name for name in names} - found
            todo += [name for name in new if name.endswith("/")]
            found |= new
            n_text += sum(map(len, new))
            if len(found) > _MAX_ENTRIES or n_text > _MAX_TEXT:
                problem = f"its pages list more than {_MAX_ENTRIES} entries, or names too long"
                raise SourceError(f"{problem}: name a folder in it", kind="unusable")
        return [*map(RemoteFile, sorted(found))]

    def _page(self, address: str, timeout: float, cancellation: Cancellation | None) -> bytes:
        try:
            return self._web.text(address, _MAX_PAGE, timeout=timeout, cancellation=cancellation)[0]
        except SourceError as error:
            if error.kind != "refused":
                raise
            problem = f"{error.problem}; does the server list its folders?"
            raise SourceError(problem, kind="refused") from error

    def stat(
        self, name: str, *, timeout: float, cancellation: Cancellation | None = None
    ) -> RemoteFile:
        """Return size and entity tag, where the server tells them without giving the file.

        One that answers HEAD with a refusal may still answer GET (a signed address, for example),
        so a refusal tells nothing.
        """
        address = below(self._address, name)
        return self._web.stat(address, name, timeout=timeout, cancellation=cancellation)

    def read(
        self, request: ReadRequest, cancellation: Cancellation | None = None
    ) -> contextlib.AbstractContextManager[Response]:
        """Open a file or a part of it; see `Source.read`."""
        return self._web.read(below(self._address, request.name), request, cancellation)

    def close(self) -> None:
        """Close the connections."""
        self._web.close()


class Web:
    """What web servers have; ``headers`` are sent along to the host that is asked first alone."""

    def __init__(self, headers: Callable[[], Mapping[str, str]]) -> None:
        from shardproof.fetching.sources._client import WebClient  # noqa: PLC0415 - 60 ms

        self._client = WebClient(headers)
        self.close = self._client.close

    def stat(
        self, address: str, name: str, *, timeout: float, cancellation: Cancellation | None
    ) -> RemoteFile:
        """Return what a HEAD request tells; of a refusal, nothing."""
        with self._client.answer("HEAD", address, {}, timeout, cancellation) as answer:
            answer.read_short()  # nothing; but it keeps the connection
            if answer.status != 200:
                is_passing = answer.status >= 500 and answer.status != _NO_SUCH_METHOD
                if is_passing or answer.status in _LATER:
                    _refuse_status(answer, address)
                return RemoteFile(name)
            # Some answer HEAD with a length of 0, whatever the file is, or of other bytes.
            size = None if "content-encoding" in answer.headers else _length_of(answer) or None
            has_ranges = _ranges_of(answer) == "bytes"
            return RemoteFile(name, size, identity_of(answer), has_ranges=has_ranges)

    @contextlib.contextmanager
    def read(
        self, address: str, request: ReadRequest, cancellation: Cancellation | None
    ) -> Iterator[Response]:
        """Ask for a file, or a part of it, and hand its bytes over as they come."""
        start, stop, known = request.start, request.stop, request.known
        headers = {}
        if start or stop is not None:
            headers["range"] = f"bytes={start}-{'' if stop is None else stop - 1}"
            if known is not None and known.identity is not None:
                if not _ENTITY_TAG.fullmatch(known.identity):
                    problem = f"no entity tag of it is known, but {quoted(known.identity, 40)}"
                    raise SourceError(problem, kind="other-bytes")
                headers["if-range"] = known.identity
        with self._client.answer("GET", address, headers, request.timeout, cancellation) as answer:
            _refuse_encoded(answer)
            if answer.status == 206 and headers:
                yield _part_of(answer, request)
            elif answer.status == 200:
                yield _whole_of(answer, request.name)
            else:
                _refuse_status(answer, address)

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
        method, headers, content = "GET", {}, b""
        if form is not None:
            method, content = "POST", urlencode(form).encode()
            headers["content-type"] = "application/x-www-form-urlencoded"
        with self._client.answer(
            method, address, headers, timeout, cancellation, content=content
        ) as answer:
            _refuse_encoded(answer)
            if answer.status != 200:
                _refuse_status(answer, address, answer.headers.get("x-error-code", ""))
            body = bytearray()
            for chunk in answer.response.iter_stream():
                body += chunk
                if len(body) > max_bytes:
                    problem = f"expected at most {max_bytes} bytes, found more"
                    raise SourceError(problem, kind="unusable")
            return bytes(body), answer.following


def _refuse_status(answer: "WebAnswer", address: str, code: str = "") -> None:
    """Raise what the status means; some servers have a code of their own for it."""
    status, reason = answer.status, answer.response.extensions["reason_phrase"].decode("latin-1")
    problem = f"'{shown(bare(address))}' answers {status} {plain(reason)}".rstrip()
    if code:
        problem += f" ({quoted(code)})"
    if status in {401, 403}:
        problem += ": credentials are missing, wrong or not enough"
    if status in {206, 416}:
        raise SourceError(f"{problem}, to a request for bytes it should have", kind="other-bytes")
    is_for_now = status >= 500 or status in _LATER
    raise SourceError(
        problem,
        kind="broken" if is_for_now else "refused",
        retry_after=seconds_to_wait(answer.headers.get("retry-after")) if is_for_now else None,
    )


def _refuse_encoded(answer: "WebAnswer") -> None:
    """Raise if the bytes come encoded, although they were asked for as they are."""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        found = quoted(encoding, 20)
        problem = f"asked for bytes as they are, it says that they are encoded: {found}"
        raise SourceError(problem, kind="other-bytes")


def _whole_of(answer: "WebAnswer", name: str) -> Response:
    """Return the whole file, which comes from its first byte on."""
    size = _length_of(answer)
    chunked = "transfer-encoding" in answer.headers
    chunks = _chunks(answer, size)
    first = next(chunks, b"")
    ranges = _ranges_of(answer)
    return Response(
        file=RemoteFile(name, size, identity_of(answer), has_ranges=ranges == "bytes"),
        start=0,
        stop=size,
        chunks=itertools.chain([first], chunks),
        is_framed=size is not None or chunked,
        is_page=is_page(name, answer.headers.get("content-type", ""), first),
        has_ranges=ranges != "none",
    )


def _part_of(answer: "WebAnswer", request: ReadRequest) -> Response:
    """Return the part of a file that was requested, if that is what the answer holds."""
    start, stop = request.start, request.stop
    said = answer.headers.get("content-range", "")
    found = _CONTENT_RANGE.fullmatch(said.strip())
    if found is None:
        raise SourceError(f"which bytes it gives can't be read: {quoted(said)}", kind="other-bytes")
    first, last = int(found[1]), int(found[2])
    size = None if found[3] == "*" else int(found[3])
    if first != start or last < first or last >= (stop or 10**18) or last >= (size or 10**18):
        wanted = f"bytes {start}-{'' if stop is None else stop - 1}"
        raise SourceError(f"asked for {wanted}, it gives {quoted(said)}", kind="other-bytes")
    n_bytes = last + 1 - first
    if (length := _length_of(answer)) not in {None, n_bytes}:
        problem = f"it gives {quoted(said)}, and says that these are {length} bytes"
        raise SourceError(problem, kind="other-bytes")
    file = RemoteFile(request.name, size, identity_of(answer))
    chunks = _no_more(_chunks(answer, n_bytes), n_bytes)
    is_of_page = is_page(request.name, answer.headers.get("content-type", ""))
    return Response(file, first, last + 1, chunks, is_page=is_of_page)


def _no_more(chunks: Iterator[bytes], n_bytes: int) -> Iterator[bytes]:
    """Refuse more bytes than were announced: a reader takes only those, and would not notice."""
    for chunk in chunks:
        n_bytes -= len(chunk)
        if n_bytes < 0:
            raise SourceError("it gives more bytes than it says", kind="other-bytes")
        yield chunk


def _chunks(answer: "WebAnswer", n_bytes: int | None) -> Iterator[bytes]:
    """Yield the body as it comes; a large one past the layers of libraries."""
    body = answer.response.iter_stream()  # the connection lives as long as it does
    if n_bytes is None or n_bytes < _LARGE or "transfer-encoding" in answer.headers:
        yield from body
        return
    connection: httpcore.NetworkStream = answer.response.extensions["network_stream"]
    chunk = next(body, b"")
    while chunk:
        yield chunk
        n_bytes -= len(chunk)
        chunk = connection.read(min(n_bytes, _PIECE), answer.patience) if n_bytes > 0 else b""
    if n_bytes:
        raise SourceError(f"the connection ended {n_bytes} bytes too early")


def _length_of(answer: "WebAnswer") -> int | None:
    """Return how many bytes the answer says that it has."""
    text = answer.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _ranges_of(answer: "WebAnswer") -> str:
    """Return which parts of files the server gives, as it says: "bytes", "none" or nothing."""
    return str(answer.headers.get("accept-ranges", "")).strip().lower()


def identity_of(answer: "WebAnswer") -> str | None:
    """Return the entity tag, if it is strong: a weak one may outlast a change (RFC 9110, 8.8.1)."""
    tag = answer.headers.get("etag", "")
    return tag if _ENTITY_TAG.fullmatch(tag) else None


def is_page(name: str, content_type: str, start: bytes = b"") -> bool:
    """Whether an answer is a page by its type or first bytes, while the name asks for no page."""
    kind = content_type.partition(";")[0].strip().lower()
    begins = _BEFORE.sub(b"", start[:_MOST_LOOKED_AT].lower(), count=1).startswith(_BEGINNINGS)
    return (kind in _TYPES or begins) and not name.lower().endswith(_ENDINGS)


def seconds_to_wait(value: str | None) -> float | None:
    """Return the seconds that a Retry-After header asks for; None for nothing that can be read."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:20])
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (moment - datetime.datetime.now(moment.tzinfo)).total_seconds())
