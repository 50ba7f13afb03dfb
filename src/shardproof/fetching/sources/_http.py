"""A web server as a source: files below one address."""

import contextlib
from collections.abc import Mapping, Sequence

from shardproof._base.arguments import checked
from shardproof._base.messages import shown
from shardproof.fetching.sources._source import Cut, Delivery, RemoteFile
from shardproof.fetching.sources._urls import bare, below, has_port_of_none, parted, resource_of
from shardproof.fetching.sources._web import Web, refuse_unsendable

__all__ = ["HttpSource"]


class HttpSource:
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
        if has_port_of_none(url):
            raise ValueError(f"url: expected a port up to 65535 in '{shown(bare(url))}'")
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

    def stat(self, name: str, *, timeout: float, cut: Cut | None = None) -> RemoteFile:
        """Return size and entity tag, where the server tells them without giving the file.

        One that answers HEAD with a refusal may still answer GET (a signed address, for example),
        so a refusal tells nothing.
        """
        return self._web.stat(below(self._address, name), name, timeout=timeout, cut=cut)

    def read(
        self,
        name: str,
        *,
        start: int = 0,
        stop: int | None = None,
        known: RemoteFile | None = None,
        timeout: float,
        cut: Cut | None = None,
    ) -> contextlib.AbstractContextManager[Delivery]:
        """Open a file or a part of it; see `Source.read`."""
        address = below(self._address, name)
        return self._web.read(address, name, start, stop, known, timeout=timeout, cut=cut)

    def close(self) -> None:
        """Close the connections."""
        self._web.close()
