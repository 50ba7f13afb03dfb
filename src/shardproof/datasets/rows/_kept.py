"""Listings that are kept beside the cache: a job starts from them when the hub can't be asked.

A commit never changes, so what was listed of it holds. It tells which shards there are, so that one
that was changed could leave out rows: it has a digest. The bytes of shards are proven as always.
"""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterator

import msgspec

from shardproof._base import files as _files
from shardproof._base import json
from shardproof._base.messages import printable, quoted, shown, told
from shardproof._base.opening import names_in, real_path
from shardproof.datasets.rows._listings import Listing, UnreachableError, ask_listing
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.fetching.cache import key_of
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Limits

logger = logging.getLogger("shardproof.fetching")


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was listed of a revision when the hub was last asked for it; in a file of its own."""

    revision: str  # empty for the default branch
    commit: str
    files: tuple[RemoteFile, ...]
    card: dict[str, str] | None
    digest: str = ""  # of the others, and of whose listing it is


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
            self._keep(listing, revision or "", listing.commit)
        return listing

    def _keep(self, listing: Listing, revision: str, commit: str) -> None:
        """Keep a listing, unless as much of the commit is kept; what fails is logged."""
        files = tuple(listing.files)
        kept = _Kept(revision=revision, commit=commit, files=files, card=listing.card)
        kept = self._with_digest(kept)
        name = _file_of(revision)
        with contextlib.suppress(ManifestError, OSError):
            before = self._read(name)
            if before == kept or (before.commit == commit and kept.card is None):
                return
        data = msgspec.json.encode(kept)
        if len(data) > json.MAX_BYTES:
            return
        try:
            _files.make_directories(self.directory)
            _files.write_whole(os.path.join(self.directory, name), data)
        except OSError as error:
            logger.warning(
                "Could not keep a listing in '%s': %s", shown(self.directory), told(error)
            )

    def _instead(self, revision: str, error: UnreachableError, *, with_card: bool) -> Listing:
        problem = f"nothing is kept of it in '{shown(self.directory)}'"
        try:
            for kept in self._all_of(revision):
                if kept.card is not None or not with_card:
                    said, commit = printable(error.problem), shown(kept.commit)
                    logger.warning("%s; what is kept of commit %s is taken", said, commit)
                    return Listing(kept.files, kept.card, kept.commit)
                problem = "it was kept without the dataset card; name the files: data_files"
        except (ManifestError, OSError) as found:
            problem = f"what is kept of it is not believed: {told(found)}"
        problem = f"{error.problem}; {problem}. Load it once while the hub can be asked"
        raise UnreachableError(problem, kind="broken") from error

    def _all_of(self, revision: str) -> Iterator[_Kept]:
        """Yield what is kept of a revision, and of others that were the commit that is meant."""
        own = _file_of(revision)
        for name in [own, *(name for name in names_in(self.directory) if name != own)]:
            try:
                kept = self._read(name)
            except ManifestError as error:
                if name == own and not isinstance(error, ManifestNotFoundError):
                    raise
            else:
                if revision in {kept.revision, kept.commit}:
                    yield kept

    def _read(self, name: str) -> _Kept:
        kept = json.read(self.directory, name, _Kept)
        if self._with_digest(kept) != kept:
            problem = (
                f"expected a listing of {quoted(self._repo_id)} with its digest, found another"
            )
            raise ManifestError(problem, path=os.path.join(self.directory, name))
        return kept

    def _with_digest(self, kept: _Kept) -> _Kept:
        data = msgspec.json.encode(msgspec.structs.replace(kept, digest=""))
        digest = hashlib.sha256(b"%b\0%b" % (self._repo_id.encode(), data)).hexdigest()
        return msgspec.structs.replace(kept, digest=f"sha256:{digest}")


def _file_of(revision: str) -> str:
    return f"{key_of(revision)}.json"
