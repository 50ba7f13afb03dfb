"""Where shards come from, in a form that any process can open for itself."""

import contextlib
import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from urllib.parse import quote

from shardproof.fetching.sources import HubSource, RemoteFile, Source, open_source

__all__ = ["HubAddress", "Origin", "opened"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """A repository as it was at one commit, which any process can open for itself.

    Attributes:
        repo_id: Of a dataset.
        revision: What was asked for.
        commit: What that was, once it is known.
        files: What was listed at that commit; of these the hub is not asked again.
        endpoint: As `HubSource` has it.
        token: As `HubSource` has it.
    """

    repo_id: str
    revision: str | None = None
    commit: str | None = None
    files: Sequence[RemoteFile] = ()
    endpoint: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)

    def open(self) -> Source:
        """Return the source, with connections of its own."""
        return _HubAt(self)


class _HubAt(HubSource):
    """The files of the commit, under the address that was asked for: a cache goes by that."""

    def __init__(self, address: HubAddress) -> None:
        super().__init__(
            address.repo_id,
            revision=address.commit or address.revision,
            endpoint=address.endpoint,
            token=address.token,
        )
        at = f"@{quote(address.revision, safe='')}" if address.revision else ""
        self._commit = address.commit
        self._known.update({file.name: file for file in address.files})
        self._url = f"hf://datasets/{address.repo_id}{at}"

    @property
    def url(self) -> str:
        return self._url


Origin = Source | HubAddress | str
"""What `opened` opens."""


def opened(origin: Origin) -> AbstractContextManager[Source]:
    """Give the source that an address names, and close it; one that is given stays open."""
    if not isinstance(origin, HubAddress | str):
        return contextlib.nullcontext(origin)
    # No generator, which the collector of garbage would close before those who read from it.
    return contextlib.closing(open_source(origin) if isinstance(origin, str) else origin.open())
