"""What lies in a repository's folder of the client's cache: snapshots, and refs to them."""

import errno
import os
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shardproof._base import json
from shardproof._base.opening import files_below, is_directory, is_of_a_desktop, names_in, real_path
from shardproof.errors import ManifestError
from shardproof.formats.hub._laws import Listing, listings_in
from shardproof.manifest import Contradiction

_REF_IN_THE_MAKING = re.compile(r".*\.[0-9a-f]{8}\.tmp", re.DOTALL)

_MAX_REF_BYTES = 1024


class CachedFile(NamedTuple):
    """An entry of a snapshot, and where its link leads, from the repository's folder; or None."""

    path: str
    target: str | None

    @property
    def blob(self) -> str | None:
        """The name of the blob that it leads to."""
        folder, _, name = (self.target or "").rpartition("/")
        return name if folder == "blobs" else None


class Snapshot(NamedTuple):
    """What is here of a commit."""

    commit: str
    files: Sequence[CachedFile]
    listing: Listing

    @property
    def folder(self) -> str:
        """Where it is in the repository's folder."""
        return f"snapshots/{self.commit}/"


def refs_in(root: str) -> dict[str, str | ManifestError]:
    """Return the commit that each ref names, or why it can't be read."""
    refs: dict[str, str | ManifestError] = {}
    folder = os.path.join(root, "refs")
    for name in files_below(folder) if is_directory(folder) else ():
        if is_of_a_desktop(os.path.basename(name)) or _REF_IN_THE_MAKING.fullmatch(name):
            continue
        try:
            text = json.read_bytes(root, f"refs/{name}", max_bytes=_MAX_REF_BYTES)
            refs[name] = text.decode(errors="replace").strip()
        except ManifestError as error:
            refs[name] = error
    return refs


def commits_in(root: str, refs: Mapping[str, object]) -> list[str]:
    """Return the commits of which there is a snapshot, those that a ref names first."""
    folder, named = os.path.join(root, "snapshots"), {*refs.values()}
    found = [name for name in names_in(folder) if is_directory(os.path.join(folder, name))]
    return sorted(found, key=lambda name: (name not in named, name))


def snapshots_of(root: str, commits: Sequence[str], torn: list[Contradiction]) -> list[Snapshot]:
    """Return what is here of each commit, in the same order; ``torn`` gets torn listings."""
    listings = listings_in(root, "trees", commits, torn)
    return [Snapshot(each, _files_in(root, each), listings.get(each, {})) for each in commits]


def _files_in(root: str, commit: str) -> list[CachedFile]:
    folder = os.path.join(root, "snapshots", commit)
    paths = files_below(folder, hidden=True) if is_directory(folder) else []
    files = (CachedFile(path, _target(root, os.path.join(folder, path))) for path in paths)
    return [
        file
        for file in files
        if file.target is not None or not any(map(is_of_a_desktop, file.path.split("/")))
    ]


def _target(root: str, path: str) -> str | None:
    """Return where a link leads that the client made, as `CachedFile` has it."""
    try:
        text = os.readlink(path)
    except OSError as error:
        if error.errno in {errno.EINVAL, errno.ENOENT}:  # no link, or not there any more
            return None
        raise
    folder, name = os.path.split(text)
    if os.path.isabs(folder):
        folder = real_path(folder)
    target = os.path.normpath(os.path.join(os.path.dirname(path), folder, name))
    return target.removeprefix(root + "/")
