"""Web servers as a source: files below one address, and what else is asked of such servers."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import urlencode

from shardproof._base.arguments import checked
from shardproof._base.messages import quoted, shown
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
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    SourceContext,
)
from shardproof.fetching.sources._urls import bare, below, parted, resource_of

_NO_SUCH_METHOD = 501  # RFC 9110, 15.6.2: what a server without HEAD says
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")  # RFC 9110, 5.1
_HEADER_VALUE = re.compile(r"([!-~]+([ \t]+[!-~]+)*)?")  # RFC 9110, 5.5, of which ASCII


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
                if is_passing or answer.status in LATER:
                    refuse_status(answer, address)
                return RemoteFile(name)
            # Some answer HEAD with a length of 0, whatever the file is.
            size = length_of(answer) or None
            has_ranges = ranges_of(answer) == "bytes"
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
                headers["if-range"] = sendable_tag(known.identity)
        with self._client.answer("GET", address, headers, request.timeout, cancellation) as answer:
            refuse_encoded(answer)
            if answer.status == 206 and headers:
                yield part_of(answer, request)
            elif answer.status == 200:
                yield whole_of(answer, request.name)
            else:
                refuse_status(answer, address)

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
            refuse_encoded(answer)
            if answer.status != 200:
                refuse_status(answer, address, answer.headers.get("x-error-code", ""))
            body = bytearray()
            for chunk in answer.response.iter_stream():
                body += chunk
                if len(body) > max_bytes:
                    problem = f"expected at most {max_bytes} bytes, found more"
                    raise SourceError(problem, kind="unusable")
            return bytes(body), answer.following
