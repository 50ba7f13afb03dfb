"""WebDataset's index for random access (wids): a JSON file that lists the archives.

Its name is up to whoever makes it, ``shardindex.json`` by default: what is in it tells. Its
addresses are relative to it, or lead elsewhere; then an archive is promised if a copy is here.
"""

import collections
import os
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import is_there, matching, names_in, read_at
from shardproof.errors import ManifestError
from shardproof.formats._format import Format
from shardproof.formats._opened import opened
from shardproof.manifest import Contradiction, Manifest, Mismatch, PromisedFile
from shardproof.probes import tar

__all__ = ["FORMAT"]

_NAME = "wids"
_USUAL_NAME = "shardindex.json"
_MARK = b'"wids_version"'
_HEAD_BYTES = 4096
_MOST_LOOKED_AT = 64
"""Files of JSON: there may be one beside each archive."""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _WidsShard(msgspec.Struct, omit_defaults=True, gc=False):
    url: str
    nsamples: _Count
    md5sum: str | None = None
    filesize: _Count | None = None


class _WidsPart(msgspec.Struct, omit_defaults=True):
    """A data set in another: its archives are listed here, or in an index elsewhere."""

    shardlist: list[_WidsShard] = []
    base: str | None = None
    name: str | None = None
    source_url: str | None = None


class _WidsIndex(msgspec.Struct, omit_defaults=True):
    wids_version: int
    shardlist: list[_WidsShard] = []
    datasets: list[_WidsPart] = []
    kind: str | None = msgspec.field(default=None, name="__kind__")
    base: str | None = None
    name: str | None = None


def _recognizes(path: str) -> bool:
    return is_there(os.path.join(path, _USUAL_NAME)) or bool(_indices(path))


def _indices(path: str) -> list[str]:
    """Return the names of the files that are such an index."""
    names = matching(path, "*.json")[:_MOST_LOOKED_AT]
    return [name for name in names if _is_index(path, name)]


def _is_index(root: str, name: str) -> bool:
    with opened(name, root) as fd:
        return fd is not None and _MARK in read_at(fd, _HEAD_BYTES)


def _read_manifest(path: str) -> Manifest:
    # Where nothing looks like one, reading the usual one says why it does not.
    names = _indices(path) or [_USUAL_NAME]
    files, contradictions = _merged([(name, _promises(path, name)) for name in names])
    first = Path(path, names[0])
    if not files:
        problem = "expected archives in this directory, found none, or addresses elsewhere"
        raise ManifestError(problem, path=first)
    return Manifest(
        root=Path(path),
        path=first,
        format=_NAME,
        files=files,
        probe=tar.probe,
        prove=tar.prove,
        contradictions=lambda: contradictions,
    )


def _promises(path: str, index: str) -> list[PromisedFile]:
    """Return what an index promises of this directory."""
    found = json.read(path, index, _WidsIndex, usual=_WidsIndex)
    files = []
    # Those of a data set in another begin wherever that one is from.
    others = [shard for part in found.datasets for shard in part.shardlist]
    for shard in found.shardlist:
        inside = shard.url.removeprefix(f"{path}/").removeprefix("./")
        if inside.startswith("/") or _ADDRESS.match(inside):
            others.append(shard)
        else:
            files.append(_promise(shard, inside))
    return files + list(_copies(others, frozenset(names_in(path)) if others else ()))


def _copies(shards: Sequence[_WidsShard], here: Collection[str]) -> Iterator[PromisedFile]:
    """Yield a promise for each archive from elsewhere that is here; else of its path, to refuse."""
    n_named = collections.Counter(posixpath.basename(shard.url) for shard in shards)
    for shard in shards:
        name = posixpath.basename(shard.url)
        if name in here:
            if n_named[name] == 1:
                yield _promise(shard, name)
        elif shard.url.startswith("/"):
            yield _promise(shard, shard.url)


def _promise(shard: _WidsShard, name: str) -> PromisedFile:
    md5 = f"md5:{shard.md5sum}" if shard.md5sum else None
    return PromisedFile(name=name, size=shard.filesize, digest=md5, n_items=shard.nsamples)


def _merged(
    promises: Sequence[tuple[str, Sequence[PromisedFile]]],
) -> tuple[list[PromisedFile], list[Contradiction]]:
    """Return what all indices promise, each archive once, and where a later one disagrees."""
    files: list[PromisedFile] = []
    contradictions = []
    for index, more in promises:
        known = {file.name: file for file in files}
        files += [file for file in more if file.name not in known]
        for file in more:
            said, again = _said(known.get(file.name, file)), _said(file)
            for what in said.keys() & again.keys():
                if said[what] != again[what]:
                    found = f"{again[what]} in {quoted(index)}"
                    mismatch = Mismatch(expected=f"{what} {said[what]}", found=found)
                    contradictions.append(Contradiction(file.name, mismatch))
    return files, contradictions


def _said(file: PromisedFile) -> dict[str, str]:
    """Return what is stated of a file, as a report shows it."""
    stated = {"bytes": file.size, "samples": file.n_items, "digest": file.digest}
    return {what: quoted(value) for what, value in stated.items() if value is not None}


FORMAT = Format(
    name=_NAME,
    description="samples in tar archives, which an index for random access lists",
    manifest_file="*.json",
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="sizes that the index states; the first headers of each archive, the mark at its end",
    valid="MD5 digests that the index states; else what archives prove by themselves",
    blind_spots="archives that are listed by an address elsewhere, and of which no copy is here",
    includes=("webdataset",),
)
