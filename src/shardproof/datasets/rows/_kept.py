"""Listings that are kept beside the cache: a job starts from them when the hub can't be asked.

A commit never changes, so what was listed of it holds. What is kept is bound to repository and
commit, and carries a digest of itself: what is cut off, changed or of something else is not
believed. It tells which shards there are; their bytes are proven as always.
"""

import contextlib
import hashlib
import logging
import os
import re
from typing import Literal, TypeVar

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files as _files
from shardproof._base import json
from shardproof._base.messages import printable, shown, told
from shardproof._base.opening import real_path
from shardproof.datasets.rows._card import CARD_FILES
from shardproof.datasets.rows._listings import Listing, UnreachableError, ask_listing
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.fetching.cache import key_of
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Limits

MOST_LISTINGS = 20
"""How many commits of a repository are kept; those that were not wanted for longest go."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[0-9a-f]{40}\.json")

logger = logging.getLogger("shardproof.fetching")


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was listed of a commit."""

    repo_id: str
    commit: str
    files: tuple[RemoteFile, ...]
    card: dict[str, str] | None
    version: Literal[1] = 1


class _SealedListing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The same with its digest."""

    listing: _Kept
    digest: str


class _Branch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which commit a revision was when the hub was last asked."""

    repo_id: str
    revision: str
    commit: str
    version: Literal[1] = 1


Kind = TypeVar("Kind")


class KeptListings:
    """What is kept of one repository in a user's cache."""

    def __init__(self, cache_dir: str, repo_id: str) -> None:
        self._repo_id = repo_id
        self.directory = os.path.join(real_path(cache_dir), "listings", repo_id.replace("/", "--"))

    def ask(
        self, source: Source, revision: str | None, limits: Limits, *, with_card: bool
    ) -> Listing:
        """Return what a hub says of a revision, and keep it; if it can't be asked, what is kept.

        Raises:
            UnreachableError: It can't be asked, and nothing is kept that can be believed.
            SourceError: It refuses, or its card is too long or no text.
        """
        try:
            listing = ask_listing(source, limits, with_card=with_card)
        except UnreachableError as error:
            return self._instead(revision, error, with_card=with_card)
        self._keep(listing, revision)
        return listing

    def _keep(self, listing: Listing, revision: str | None) -> None:
        """Keep a listing, unless all of it is there; what fails is logged and costs no more."""
        commit = listing.commit
        if commit is None or not _COMMIT.fullmatch(commit):
            return
        path, is_kept = os.path.join(self.directory, f"{commit}.json"), False
        try:
            _files.make_directories(self.directory)
            with contextlib.suppress(ManifestError):
                is_kept = self._of_commit(commit).card is not None or listing.card is None
                if is_kept:
                    os.utime(path)
            if not is_kept:
                files = tuple(listing.files)
                kept = _Kept(repo_id=self._repo_id, commit=commit, files=files, card=listing.card)
                sealed = _SealedListing(listing=kept, digest=_digest_of(kept))
                data = msgspec.json.encode(sealed)
                if len(data) <= json.MAX_BYTES:
                    _files.write_whole(path, data)
            if revision != commit:
                branch = _Branch(repo_id=self._repo_id, revision=revision or "", commit=commit)
                path = os.path.join(self.directory, _file_of_branch(branch.revision))
                _files.write_whole(path, msgspec.json.encode(branch))
            last_use: dict[str, int] = {}
            for name in filter(_NAME.fullmatch, os.listdir(self.directory)):
                path = os.path.join(self.directory, name)
                with contextlib.suppress(FileNotFoundError):  # another process has removed it
                    last_use[path] = os.stat(path).st_mtime_ns
            for path in sorted(last_use, key=last_use.__getitem__)[:-MOST_LISTINGS]:
                _files.remove(path)
        except OSError as error:
            logger.warning(
                "Could not keep a listing in '%s': %s", shown(self.directory), told(error)
            )

    def _instead(
        self, revision: str | None, error: UnreachableError, *, with_card: bool
    ) -> Listing:
        try:
            commit = revision or ""  # as `_keep` has it for the default branch
            if not _COMMIT.fullmatch(commit):
                name = _file_of_branch(commit)
                branch = self._read(name, _Branch)
                if (branch.repo_id, branch.revision) != (self._repo_id, commit):
                    raise self._other(name, "repository and revision")
                if not _COMMIT.fullmatch(branch.commit):
                    raise self._other(name, "40 hexadecimal digits for a commit")
                commit = branch.commit
            listing = self._of_commit(commit)
            if with_card and listing.card is None:
                problem = "it was kept without the dataset card; name the files: data_files"
                raise ManifestError(problem, path=os.path.join(self.directory, f"{commit}.json"))
        except ManifestError as found:
            what = f"what is kept of it is not believed: {told(found)}"
            if isinstance(found, ManifestNotFoundError):
                what = f"nothing is kept of it in '{shown(self.directory)}'"
            problem = f"{error.problem}; {what}. Load it once while the hub can be asked"
            raise UnreachableError(problem, kind="broken") from error
        logger.warning(
            "%s; what is kept of commit %s is taken", printable(error.problem), shown(commit)
        )
        return listing

    def _of_commit(self, commit: str) -> Listing:
        name = f"{commit}.json"
        sealed = self._read(name, _SealedListing)
        kept = sealed.listing
        if (kept.repo_id, kept.commit) != (self._repo_id, commit):
            raise self._other(name, "repository and commit")
        if sealed.digest != _digest_of(kept):
            raise self._other(name, "digest")
        if not set(kept.card or ()) <= set(CARD_FILES) or not all(map(_is_sound, kept.files)):
            raise self._other(name, "sizes, digests and card")
        if len({file.name for file in kept.files}) < len(kept.files):
            raise self._other(name, "files, each once")
        return Listing(kept.files, kept.card, commit)

    def _read(self, name: str, kind: type[Kind]) -> Kind:
        try:
            return json.read(self.directory, name, kind)
        except ManifestError:
            raise
        except OSError as error:
            path = os.path.join(self.directory, name)
            raise ManifestError(f"it can't be read: {error.strerror}", path=path) from error

    def _other(self, name: str, what: str) -> ManifestError:
        path = os.path.join(self.directory, name)
        return ManifestError(f"expected the {what} that belong to it, found others", path=path)


def _file_of_branch(revision: str) -> str:
    return f"revision-{key_of(revision)}.json"


def _digest_of(kept: _Kept) -> str:
    return f"sha256:{hashlib.sha256(msgspec.json.encode(kept)).hexdigest()}"


def _is_sound(file: RemoteFile) -> bool:
    """Whether it is as the hub states it: with a size, and a digest that proves the bytes."""
    if file.size is None or file.size < 0 or file.digest is None:
        return False
    try:
        return _digest.parse(file.digest).algorithm in {"git-sha1", "sha256"}
    except ValueError:
        return False
