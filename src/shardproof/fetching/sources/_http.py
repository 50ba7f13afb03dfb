"""A web server as a source: files below one address."""

import contextlib
from collections.abc import Mapping, Sequence

from shardproof._base.arguments import checked
from shardproof._base.messages import shown
from shardproof.fetching.sources._source import (
    Cancellation,
    ReadRequest,
    RemoteFile,
    Response,
    SourceContext,
)
from shardproof.fetching.sources._urls import bare, below, parted, resource_of


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
        from shardproof.fetching.sources._web import Web, refuse_unsendable  # noqa: PLC0415 - 60 ms

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
        refuse_unsendable(given)
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
