"""A repository in the cache of the Hub's client: snapshots of links to blobs, named by digests.

The promise is what the snapshots hold. A blob to which several of their entries lead is promised
once, by the first: those of snapshots that a ref names come first. The other names lead to the same
bytes, and to hash them for each would take as many times as long.
"""

import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from shardproof._base.messages import quoted
from shardproof._base.opening import is_directory, is_regular, is_there, names_in, real_path
from shardproof.errors import ManifestError, ManifestNotFoundError
from shardproof.formats.hub._laws import (
    A_PART,
    digest_of,
    is_another,
    manifest_of,
    owed_weights,
    permissions_told,
    promise,
    without_part,
)
from shardproof.formats.hub._snapshots import (
    CachedFile,
    Snapshot,
    commits_in,
    refs_in,
    snapshots_of,
)
from shardproof.manifest import Contradiction, Manifest, PromisedFile
from shardproof.probes import by_name

_FOLDER = re.compile(r"(?:datasets|kernels|models|spaces)--.+", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_STORE_MARK = ".huggingface-shared-blobs"


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
        refs = {} if commit else refs_in(root)
        snapshots = snapshots_of(root, [commit] if commit else commits_in(root, refs), torn)
        files = _promises(root, snapshots)
        if not files:
            raise _nothing(root, path)
        files |= {} if commit else _unlinked(root, snapshots)
        stores = _stores(root)
    return manifest_of(
        files,
        root=Path(root),
        path=Path(path),
        format="hf-cache",
        probe=by_name.probe,
        contradictions=functools.partial(_contradictions, root, snapshots, refs, commit, torn),
        stores=stores,
    )


def _promises(root: str, snapshots: Sequence[Snapshot]) -> dict[str, PromisedFile]:
    """Return the promises, by the blobs that they are about, or by their own names."""
    files: dict[str, PromisedFile] = {}
    for snapshot in snapshots:
        for file in snapshot.files:
            key = f"blobs/{file.blob}" if file.blob else snapshot.folder + file.path
            if (known := files.get(key)) is None or known.size is None:
                made = _promise(root, snapshot, file)
                files[key] = made if known is None or made.size is not None else known
        files |= _owed(root, snapshot)
    return files


def _promise(root: str, snapshot: Snapshot, file: CachedFile) -> PromisedFile:
    name, listed = snapshot.folder + file.path, snapshot.listing.get(file.path)
    made = promise(name, digest_of(file.blob or ""), listed)
    if file.target is None and listed is None and _may_be_empty(os.path.join(root, name)):
        return PromisedFile(name=name, size=0)
    return made


def _may_be_empty(path: str) -> bool:
    """Whether a file that nothing tells of is empty, as those are that only mark a folder."""
    return is_regular(path) and not os.stat(path).st_size and not by_name.has_law(path)


def _owed(root: str, snapshot: Snapshot) -> Iterator[tuple[str, PromisedFile]]:
    here = {file.path for file in snapshot.files}
    for path in owed_weights(root, snapshot.folder, here, lambda _: snapshot.listing):
        name = snapshot.folder + path
        yield name, promise(name, None, snapshot.listing.get(path))


def _unlinked(root: str, snapshots: Sequence[Snapshot]) -> dict[str, PromisedFile]:
    """Return files whose blobs are here, and to which nothing links: a client was killed then."""
    linked = {f"{file.blob}" for snapshot in snapshots for file in snapshot.files}
    alone = {*names_in(os.path.join(root, "blobs"))} - linked
    return {
        (name := snapshot.folder + path): promise(name, None, listed)
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


def _nothing(root: str, path: str) -> ManifestNotFoundError:
    blobs = names_in(os.path.join(root, "blobs"))
    n_parts = sum(without_part(name) is not None for name in blobs)
    parts = f" and {n_parts} parts of downloads that were cut off" if n_parts else ""
    problem = (
        f"expected a snapshot with files, found none, {len(blobs) - n_parts} blobs{parts}: "
        "run the download again"
    )
    return ManifestNotFoundError(problem, path=path)


def _contradictions(
    root: str,
    snapshots: Sequence[Snapshot],
    refs: Mapping[str, str | ManifestError],
    only: str | None,
    torn: Sequence[Contradiction],
) -> Iterator[Contradiction]:
    yield from torn
    for snapshot in snapshots:
        yield from _misled(snapshot)
    yield from _lost(root, refs, {snapshot.commit for snapshot in snapshots if snapshot.files})
    yield from _cut_off(root, snapshots, only)


def _misled(snapshot: Snapshot) -> Iterator[Contradiction]:
    """Yield links into another folder, and those to another file's blob."""
    for file in snapshot.files:
        if file.target is None or os.path.isabs(file.target):
            continue
        expected, digest = None, digest_of(file.blob or "")
        listed = snapshot.listing.get(file.path)
        if file.blob is None:
            expected = "a link to a file of 'blobs'"
        elif listed is not None and is_another(digest, listed.digest):
            expected = f"a link to {listed.digest}, as the Hub lists it"
        if expected:
            found = f"a link to {quoted(file.target)}"
            yield Contradiction(snapshot.folder + file.path, expected, found)


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


def _cut_off(root: str, snapshots: Sequence[Snapshot], only: str | None) -> Iterator[Contradiction]:
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
        tag = without_part(name)
        if tag is not None and tag not in whole and (is_of_all or tag in listed):
            yield Contradiction(f"blobs/{name}", *A_PART)


def _tag_of(listed: PromisedFile) -> str:
    return (listed.digest or "").partition(":")[2]


def name_in_repository(name: str) -> str:
    """Return the path in the repository of what is promised as one of a snapshot."""
    parts = name.split("/", 2)
    return parts[2] if parts[0] == "snapshots" and len(parts) == 3 else name
