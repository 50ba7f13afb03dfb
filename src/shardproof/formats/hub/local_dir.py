"""Where ``hf download --local-dir`` put a repository: the client notes what it fetched.

It notes the commit, the entity tag, which is the digest, and the time. Who changes a file after
that time, if only by copying it, makes the client ask for it anew; here it keeps its promise: a
README that was edited is a finding, and so is a shard that was damaged.
"""

import base64
import functools
import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import files_below, is_of_a_desktop, is_regular, names_in
from shardproof.errors import ManifestError, ManifestNotFoundError, ManifestPermissionError
from shardproof.formats._reading import permissions_told
from shardproof.formats.hub import _laws
from shardproof.manifest import Contradiction, ExpectedFile, Manifest
from shardproof.probes import by_name

_FOLDER = ".cache/huggingface"
_NOTES = f"{_FOLDER}/download"
_NOTE, _LOCK = ".metadata", ".lock"
_MAX_NOTE_BYTES = 4096


class _Note(NamedTuple):
    """What the client noted of a file; no texts where it can't be read, but what was found."""

    path: str
    commit: str = ""
    tag: str = ""
    problem: str | None = None


def recognizes(path: str) -> bool:
    return bool(names_in(os.path.join(path, _NOTES)))


def read_manifest(path: str) -> Manifest:
    with permissions_told(path):
        folder = os.path.join(path, _NOTES)
        found = files_below(folder, hidden=True) if recognizes(path) else []
        names = [name for name in found if not is_of_a_desktop(os.path.basename(name))]
        notes = list(_notes(path, [name for name in names if name.endswith(_NOTE)]))
        if not notes:
            problem = "there are no notes of downloads in it: run the download again"
            raise ManifestNotFoundError(problem, path=folder)
        torn, commits = list[Contradiction](), {note.commit for note in notes}
        listings = _laws.listings_in(path, f"{_FOLDER}/trees", commits, torn)
        late = _late(path, names, notes, listings.values())
        files = _promises(path, notes, {**listings, "": late})
    return _laws.manifest_of(
        path,
        _NOTES,
        "hf-local-dir",
        files,
        probe=by_name.probe,
        contradictions=functools.partial(_contradictions, torn, names),
        damaged=[
            Contradiction(
                f"{_NOTES}/{note.path}{_NOTE}", "lines of commit, tag and time", note.problem
            )
            for note in notes
            if note.problem is not None and note.path not in late
        ],
    )


def _notes(root: str, names: Iterable[str]) -> Iterator[_Note]:
    for name in names:
        path = name.removesuffix(_NOTE)
        try:
            data = json.read_bytes(root, f"{_NOTES}/{name}", max_bytes=_MAX_NOTE_BYTES)
        except ManifestPermissionError:
            raise
        except ManifestNotFoundError:  # the client removed it meanwhile
            continue
        except ManifestError as error:
            yield _Note(path, problem=error.problem)
            continue
        lines = data.decode(errors="replace").split("\n")
        try:
            commit, tag, _ = lines[0].strip(), lines[1].strip(), float(lines[2])
            yield _Note(path, commit, tag)
        except (IndexError, ValueError):
            yield _Note(path, problem=quoted(data) if data else "nothing")


def _late(
    root: str, names: Iterable[str], notes: Sequence[_Note], listings: Collection[_laws.Listing]
) -> dict[str, ExpectedFile]:
    """Return what is listed of files that are here before their notes, or whose notes are torn."""
    locked = {name.removesuffix(_LOCK) for name in names if name.endswith(_LOCK)}
    torn = {note.path for note in notes if note.problem is not None}
    late = {}
    for path in locked.difference(note.path for note in notes) | torn:
        found = [each[path] for each in listings if path in each]
        if found and found.count(found[0]) == len(found) and is_regular(os.path.join(root, path)):
            late[path] = found[0]
    return late


def _promises(
    root: str, notes: Sequence[_Note], listings: Mapping[str, _laws.Listing]
) -> dict[str, ExpectedFile]:
    commits = {note.path: note.commit for note in notes}

    def listing_of(path: str) -> _laws.Listing:
        return listings.get(commits.get(path, ""), {})

    files = {**listings[""]}
    for path, _, tag, _ in notes:
        files[path] = _laws.promise(path, _laws.digest_of(tag), listing_of(path).get(path))
    for path in _laws.owed_weights(root, "", {**files}, listing_of):
        files[path] = ExpectedFile(name=path)
    return files


def _contradictions(torn: Sequence[Contradiction], names: Sequence[str]) -> Iterator[Contradiction]:
    yield from torn
    parts = {name: stem for name in names if (stem := _laws.without_part(name)) is not None}
    noted = {name.removesuffix(_NOTE) for name in names if parts and name.endswith(_NOTE)}
    hashed = set(map(_hashed, noted))
    for name, stem in parts.items():
        folder, base = os.path.split(stem)
        now, before = os.path.join(folder, base.partition(".")[0]), stem.rpartition(".")[0]
        if now not in hashed and before not in noted:
            yield Contradiction(f"{_NOTES}/{name}", *_laws.A_PART)


def _hashed(path: str) -> str:
    """Return how the name of a part of a file begins; those of older clients have the file's."""
    folder, name = os.path.split(path)
    digest = hashlib.sha1(os.fsencode(name + _NOTE), usedforsecurity=False).digest()
    return os.path.join(folder, base64.urlsafe_b64encode(digest).decode())
