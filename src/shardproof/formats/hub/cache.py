"""A repository in the cache of the Hub's client: snapshots of links to blobs, named by digests.

The promise is what the snapshots hold. A blob to which several of their entries lead is promised
once, by the first: those of snapshots that a ref names come first. The other names lead to the same
bytes, and to hash them for each would take as many times as long.
"""

import errno
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import (
    files_below,
    is_directory,
    is_of_a_desktop,
    is_regular,
    is_there,
    names_in,
    real_path,
)
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats._reading import permissions_told
from shardproof.formats.hub import _laws
from shardproof.manifest import Contradiction, ExpectedFile, Manifest
from shardproof.probes import by_name

_FOLDER = re.compile(r"(?:datasets|kernels|models|spaces)--.+", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_STORE_MARK = ".huggingface-shared-blobs"
_REF_IN_THE_MAKING = re.compile(r".*\.[0-9a-f]{8}\.tmp", re.DOTALL)

_MAX_REF_BYTES = 1024


class _CachedFile(NamedTuple):
    """An entry of a snapshot, and where its link leads, from the repository's folder; or None."""

    path: str
    target: str | None

    @property
    def blob(self) -> str | None:
        folder, _, name = (self.target or "").rpartition("/")
        return name if folder == "blobs" else None


class _Snapshot(NamedTuple):
    """What is here of a commit."""

    commit: str
    files: Sequence[_CachedFile]
    listing: _laws.Listing

    @property
    def folder(self) -> str:
        return f"snapshots/{self.commit}/"


def recognizes(path: str) -> bool:
    repository, _ = _located(path)
    if _FOLDER.fullmatch(os.path.basename(repository)) is None:
        return False
    return any(is_directory(os.path.join(repository, part)) for part in ("snapshots", "blobs"))


def _located(path: str) -> tuple[str, str | None]:
    """Return the repository's folder, and the commit where a path is that of a snapshot in it."""
    above, name = os.path.split(path)
    repository, folder = os.path.split(above)
    if folder == "snapshots" and _FOLDER.fullmatch(os.path.basename(repository)):
        return repository, name
    return path, None


def read_manifest(path: str) -> Manifest:
    (root, commit), torn = _located(path), list[Contradiction]()
    with permissions_told(root):
        refs = {} if commit else _refs_in(root)
        commits = [commit] if commit else _commits_in(root, refs)
        listings = _laws.listings_in(root, "trees", commits, torn)
        snapshots = [
            _Snapshot(each, _files_in(root, each), listings.get(each, {})) for each in commits
        ]
        files = _promises(root, snapshots)
        blobs = [] if files and commit else names_in(os.path.join(root, "blobs"))
        if not files:
            n_parts = sum(_laws.without_part(name) is not None for name in blobs)
            parts = f" and {n_parts} parts of downloads that were cut off" if n_parts else ""
            problem = f"expected a snapshot with files, found none, {len(blobs) - n_parts} blobs"
            raise ManifestNotFoundError(f"{problem}{parts}: run the download again", path=path)
        files |= _unlinked(snapshots, {*blobs})
        stores = _stores(root)
    return _laws.manifest_of(
        root,
        os.path.relpath(path, root),
        "hf-cache",
        files,
        probe=by_name.probe,
        contradictions=functools.partial(_contradictions, root, snapshots, refs, commit, torn),
        stores=stores,
    )


def _refs_in(root: str) -> dict[str, str | ManifestError]:
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


def _commits_in(root: str, refs: Mapping[str, object]) -> list[str]:
    """Return the commits of which there is a snapshot, those that a ref names first."""
    folder, named = os.path.join(root, "snapshots"), {*refs.values()}
    found = [name for name in names_in(folder) if is_directory(os.path.join(folder, name))]
    return sorted(found, key=lambda name: (name not in named, name))


def _files_in(root: str, commit: str) -> list[_CachedFile]:
    folder = os.path.join(root, "snapshots", commit)
    paths = files_below(folder, hidden=True) if is_directory(folder) else []
    files = (_CachedFile(path, _target(root, os.path.join(folder, path))) for path in paths)
    return [
        file
        for file in files
        if file.target is not None or not any(map(is_of_a_desktop, file.path.split("/")))
    ]


def _target(root: str, path: str) -> str | None:
    """Return where a link leads that the client made, as `_CachedFile` has it."""
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


def _promises(root: str, snapshots: Sequence[_Snapshot]) -> dict[str, ExpectedFile]:
    """Return the promises, by the blobs that they are about, or by their own names."""
    files: dict[str, ExpectedFile] = {}
    for snapshot in snapshots:
        for file in snapshot.files:
            key = f"blobs/{file.blob}" if file.blob else snapshot.folder + file.path
            if (known := files.get(key)) is None or known.size is None:
                made = _promise(root, snapshot, file)
                files[key] = made if known is None or made.size is not None else known
        files |= _owed(root, snapshot)
    return files


def _promise(root: str, snapshot: _Snapshot, file: _CachedFile) -> ExpectedFile:
    name, listed = snapshot.folder + file.path, snapshot.listing.get(file.path)
    made = _laws.promise(name, _laws.digest_of(file.blob or ""), listed)
    if file.target is None and listed is None and by_name.law_of(name) is None:
        # What nothing tells of may be empty, as files are that only mark a folder.
        path = os.path.join(root, name)
        if is_regular(path) and not os.stat(path).st_size:
            return ExpectedFile(name=name, size=0)
    return made


def _owed(root: str, snapshot: _Snapshot) -> Iterator[tuple[str, ExpectedFile]]:
    here = {file.path for file in snapshot.files}
    for path in _laws.owed_weights(root, snapshot.folder, here, lambda _: snapshot.listing):
        name = snapshot.folder + path
        yield name, _laws.promise(name, None, snapshot.listing.get(path))


def _unlinked(snapshots: Sequence[_Snapshot], blobs: set[str]) -> dict[str, ExpectedFile]:
    """Return files whose blobs are here, and to which nothing links: a client was killed then."""
    alone = blobs.difference(f"{file.blob}" for each in snapshots for file in each.files)
    return {
        (name := snapshot.folder + path): _laws.promise(name, None, listed)
        for snapshot in (snapshots if alone else ())
        for path, listed in snapshot.listing.items()
        if _tag_of(listed) in alone and path not in {file.path for file in snapshot.files}
    }


def _stores(root: str) -> list[str]:
    """Return where blobs are; repositories of one cache may share another such place."""
    store = os.path.join(os.path.dirname(root), "blobs")
    is_shared = real_path(store) == store and is_regular(os.path.join(store, _STORE_MARK))
    own = real_path(os.path.join(root, "blobs"))  # a link that leads out is not followed
    return [own] * own.startswith(f"{root}/") + [store] * is_shared


def _contradictions(
    root: str,
    snapshots: Sequence[_Snapshot],
    refs: Mapping[str, str | ManifestError],
    only: str | None,
    torn: Sequence[Contradiction],
) -> Iterator[Contradiction]:
    yield from torn
    for snapshot in snapshots:
        for file in snapshot.files:
            yield from _misled(snapshot, file)
    yield from _lost(root, refs, {snapshot.commit for snapshot in snapshots if snapshot.files})
    yield from _cut_off(root, snapshots, only)


def _misled(snapshot: _Snapshot, file: _CachedFile) -> Iterator[Contradiction]:
    """Yield a link into another folder, or to another file's blob."""
    listed, expected = snapshot.listing.get(file.path), ""
    if file.blob is None:
        expected = "a link to a file of 'blobs'"
    elif listed is not None and _laws.is_another(_laws.digest_of(file.blob), listed.digest):
        expected = f"a link to {listed.digest}, as the Hub lists it"
    if expected and file.target is not None and not os.path.isabs(file.target):
        name, found = snapshot.folder + file.path, f"a link to {quoted(file.target)}"
        yield Contradiction(name, expected, found)


def _lost(
    root: str, refs: Mapping[str, str | ManifestError], here: Collection[str]
) -> Iterator[Contradiction]:
    """Yield refs to commits of which there is nothing, unless only what they lack was asked for."""
    for name, commit in refs.items():
        if isinstance(commit, ManifestError):
            found = commit.problem
        elif commit in here or (
            _COMMIT.fullmatch(commit) and is_there(os.path.join(root, ".no_exist", commit))
        ):
            continue
        else:
            found = f"{quoted(commit)}: run the download again, or remove the ref"
        yield Contradiction(f"refs/{name}", "a commit of which there is a snapshot", found)


def _cut_off(
    root: str, snapshots: Sequence[_Snapshot], only: str | None
) -> Iterator[Contradiction]:
    """Yield parts of files that are not there whole; a client that is killed leaves them."""
    blobs = {*names_in(os.path.join(root, "blobs"))}
    copies = [  # in the place of links
        snapshot.listing.get(file.path)
        for snapshot in snapshots
        for file in snapshot.files
        if file.target is None
    ]
    whole = blobs.union(_tag_of(listed) for listed in copies if listed)
    listed = {_tag_of(file) for each in snapshots for file in each.listing.values()}
    is_of_all = not only or (not listed and len(names_in(os.path.join(root, "snapshots"))) == 1)
    for name in sorted(blobs) if None not in copies else ():  # else nobody knows what one is
        tag = _laws.without_part(name)
        if tag is not None and tag not in whole and (is_of_all or tag in listed):
            yield Contradiction(f"blobs/{name}", *_laws.A_PART)


def _tag_of(listed: ExpectedFile) -> str:
    return (listed.digest or "").partition(":")[2]
