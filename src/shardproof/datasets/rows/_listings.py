"""Where a dataset is, and what that place says before anything is fetched: files, and a card."""

import contextlib
import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple
from urllib.parse import quote

from shardproof._base.messages import quoted, shown, told
from shardproof._base.work import Deadline, Stop, apart
from shardproof.datasets.rows._card import CARD_FILES, yaml_block
from shardproof.errors import FetchError, SourceError
from shardproof.fetching.sources import HubSource, RemoteFile, Source, open_source
from shardproof.fetching.transfer import Limits, listed, read_range

_MAX_CARD_BYTES = 8 * 2**20
_MARK = "\ufeff"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """A repository as it was at one commit, which any process can open for itself."""

    repo_id: str
    revision: str | None = None  # which was asked for
    commit: str | None = None  # what that was
    files: Sequence[RemoteFile] = ()  # of that commit; the hub is not asked again
    endpoint: str | None = None
    token: str | None = dataclasses.field(default=None, repr=False)


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
    # No generator, which the collector of garbage would close before what reads from it.
    return contextlib.closing(open_source(origin) if isinstance(origin, str) else _HubAt(origin))


class UnreachableError(SourceError):
    """The source can't be asked, and has not refused either."""


class Listing(NamedTuple):
    """What a source lists, and the card in it."""

    files: Sequence[RemoteFile] = ()  # none of a source that doesn't list
    card: dict[str, str] | None = None  # YAML, by the file that it is in; None: not asked for
    commit: str | None = None


def ask_listing(source: Source, limits: Limits, *, with_card: bool) -> Listing:
    """Return what a source says, asked as often as ``limits`` say."""

    def ask(stop: Stop) -> Listing:
        try:
            files = listed(source, limits, Deadline(limits.deadline, stop), "memory")
            card = _card(source, files, limits) if with_card else None
        except SourceError:  # of a card that is none, which is a FetchError too
            raise
        except FetchError as error:
            reason = error.causes[-1] if error.causes else told(error)
            n, cause = len(error.causes), error.__cause__
            attempts = f"{n} attempt{'s' * (n != 1)}"
            problem = f"'{shown(source.url)}' can't be listed, after {attempts}: {reason}"
            if isinstance(cause, SourceError) and cause.kind in {"refused", "astray"}:
                raise SourceError(problem, kind="refused") from error
            raise UnreachableError(problem, kind="broken") from error
        return Listing(files, card, source.commit if isinstance(source, HubSource) else None)

    return apart(ask)


def _card(source: Source, files: Sequence[RemoteFile], limits: Limits) -> dict[str, str]:
    """Return the YAML in each file of the card, whose bytes are those that were listed."""
    there = {file.name: file for file in files if file.name in CARD_FILES}
    texts: dict[str, str] = {}
    for name in filter(there.__contains__, CARD_FILES):
        where, file = f"the dataset card '{shown(source.url)}/{shown(name)}'", there[name]
        if file.size is None or file.size > _MAX_CARD_BYTES:
            problem = f"expected at most {_MAX_CARD_BYTES} bytes, found {file.size or 'no size'}"
            raise SourceError(f"{where}: {problem}. Name the files: data_files", kind="unusable")
        known, data = file if file.digest is None else None, b""
        if file.size:
            data = read_range(
                source, name, 0, file.size, known=known, digest=file.digest, limits=limits
            )
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError as error:
            problem = f"expected UTF-8, found {quoted(data[error.start : error.end])}"
            raise SourceError(f"{where}: {problem}", kind="unusable") from None
    if "README.md" in texts:
        texts["README.md"] = yaml_block(texts["README.md"].removeprefix(_MARK))
    return texts
