"""Where a dataset is, and what that place says before anything is fetched: files, and a card.

What is kept of the hub's, for when that can't be asked, has a digest: else it could leave out rows.
"""

import contextlib
import dataclasses
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from urllib.parse import quote

import msgspec

from shardproof._base import files, json
from shardproof._base.messages import printable, quoted, shown, told
from shardproof._base.opening import names_in, real_path
from shardproof._base.work import Deadline, Stop, apart
from shardproof.datasets.rows._card import CARD_FILES, yaml_block
from shardproof.errors import FetchError, ManifestError, ManifestNotFoundError, SourceError
from shardproof.fetching.cache import key_of
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


Origin = Source | HubAddress | str  # what `opened` opens


def opened(origin: Origin) -> AbstractContextManager[Source]:
    """Give the source that an address names, and close it; one that is given stays open."""
    if not isinstance(origin, HubAddress | str):
        return contextlib.nullcontext(origin)
    # No generator, which the collector of garbage would close before what reads from it.
    return contextlib.closing(open_source(origin) if isinstance(origin, str) else _HubAt(origin))


class UnreachableError(SourceError):
    """The source can't be asked, and has not refused either."""


class Listing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a source lists, and the card in it; of a revision of the hub, in a file of its own."""

    revision: str = ""  # empty for the default branch
    commit: str | None = None  # None of a source that has none, which is not kept
    files: tuple[RemoteFile, ...] = ()  # none of a source that doesn't list
    card: dict[str, str] | None = None  # YAML, by the file that it is in; None: not asked for
    digest: str = ""  # of the others, and of whose listing it is, where it is kept


def ask_listing(source: Source, limits: Limits, *, with_card: bool) -> Listing:
    """Return what a source says, asked as often as ``limits`` say."""

    def ask(stop: Stop) -> Listing:
        try:
            files = tuple(listed(source, limits, Deadline(limits.deadline, stop), "memory"))
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
        commit = source.commit if isinstance(source, HubSource) else None
        return Listing(files=files, card=card, commit=commit)

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


logger = logging.getLogger("shardproof.fetching")


class KeptListings:
    """What is kept of one repository in a user's cache."""

    def __init__(self, cache_dir: str, repo_id: str) -> None:
        self._repo_id = repo_id
        self.directory = os.path.join(real_path(cache_dir), "listings", repo_id.replace("/", "--"))

    def ask(
        self, source: Source, revision: str | None, limits: Limits, *, with_card: bool
    ) -> Listing:
        """Return what a hub says of a revision, and keep it; if it can't be asked, what is kept."""
        try:
            listing = ask_listing(source, limits, with_card=with_card)
        except UnreachableError as error:
            return self._instead(revision or "", error, with_card=with_card)
        if listing.commit is not None:
            self._keep(msgspec.structs.replace(listing, revision=revision or ""))
        return listing

    def _keep(self, listing: Listing) -> None:
        """Keep a listing, unless as much of the commit is kept; what fails is logged."""
        kept, name = self._with_digest(listing), f"{key_of(listing.revision)}.json"
        with contextlib.suppress(ManifestError, OSError):
            before = self._read(name)
            if before == kept or (before.commit == kept.commit and kept.card is None):
                return
        data = msgspec.json.encode(kept)
        if len(data) > json.MAX_BYTES:
            return
        try:
            files.make_directories(self.directory)
            files.write_whole(os.path.join(self.directory, name), data)
        except OSError as error:
            logger.warning(
                "Could not keep a listing in '%s': %s", shown(self.directory), told(error)
            )

    def _instead(self, revision: str, error: UnreachableError, *, with_card: bool) -> Listing:
        problem = f"nothing is kept of it in '{shown(self.directory)}'"
        try:
            for kept in self._all_of(revision):
                if kept.card is not None or not with_card:
                    logger.warning(
                        "%s; what is kept of commit %s is taken",
                        printable(error.problem),
                        shown(str(kept.commit)),
                    )
                    return kept
                problem = "it was kept without the dataset card; name the files: data_files"
        except (ManifestError, OSError) as found:
            problem = f"what is kept of it is not believed: {told(found)}"
        problem = f"{error.problem}; {problem}. Load it once while the hub can be asked"
        raise UnreachableError(problem, kind="broken") from error

    def _all_of(self, revision: str) -> Iterator[Listing]:
        """Yield what is kept of a revision, and of others that were the commit that is meant."""
        own = f"{key_of(revision)}.json"
        for name in [own, *(name for name in names_in(self.directory) if name != own)]:
            try:
                kept = self._read(name)
            except ManifestError as error:
                if name == own and not isinstance(error, ManifestNotFoundError):
                    raise
            else:
                if revision in {kept.revision, kept.commit}:
                    yield kept

    def _read(self, name: str) -> Listing:
        kept = json.read(self.directory, name, Listing)
        if self._with_digest(kept) != kept:
            whose = f"a listing of {quoted(self._repo_id)} with its digest"
            problem = f"expected {whose}, found another"
            raise ManifestError(problem, path=os.path.join(self.directory, name))
        return kept

    def _with_digest(self, kept: Listing) -> Listing:
        data = msgspec.json.encode(msgspec.structs.replace(kept, digest=""))
        digest = hashlib.sha256(b"%b\0%b" % (self._repo_id.encode(), data)).hexdigest()
        return msgspec.structs.replace(kept, digest=f"sha256:{digest}")
