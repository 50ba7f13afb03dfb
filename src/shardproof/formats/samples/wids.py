"""WebDataset's index for random access (wids): a JSON file that lists the archives.

Its name is up to whoever makes it, ``shardindex.json`` by default: what is in it tells. Its
addresses are relative to it, or lead elsewhere; then an archive is promised if a copy is here.
"""

import collections
import os
import posixpath
import re
from collections.abc import Collection, Iterator, Sequence

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import is_there, matching, names_in
from shardproof.errors import ManifestError
from shardproof.formats._reading import begin_of
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest
from shardproof.probes import tar

_USUAL_NAME = "shardindex.json"
_MARK = b'"wids_version"'
_HEAD_BYTES = 4096
_MOST_LOOKED_AT = 64  # files of JSON: there may be one beside each archive
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class _WidsShard(msgspec.Struct, omit_defaults=True, gc=False):
    url: str
    nsamples: Count
    md5sum: str | None = None
    filesize: Count | None = None


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


def recognizes(path: str) -> bool:
    return is_there(os.path.join(path, _USUAL_NAME)) or bool(_indices(path))


def _indices(path: str) -> list[str]:
    """Return the names of the files that are such an index."""
    names = matching(path, "*.json")[:_MOST_LOOKED_AT]
    return [name for name in names if _MARK in begin_of(path, name, _HEAD_BYTES)]


def read_manifest(path: str) -> Manifest:
    # Where nothing looks like one, reading the usual one says why it does not.
    names = _indices(path) or [_USUAL_NAME]
    files, odd = list[ExpectedFile](), list[Contradiction]()
    for name in names:
        known = {file.name: file for file in files}
        for file in _promises(path, name):
            if file.name in known:
                odd += _disagreements(known[file.name], file, name)
            else:
                files.append(file)
    if not files:
        problem = "expected archives in this directory, found none, or addresses elsewhere"
        raise ManifestError(problem, path=os.path.join(path, names[0]))
    return Manifest.at(
        path, names[0], "wids", files, probe=tar.probe, prove=tar.prove, contradictions=lambda: odd
    )


def _disagreements(known: ExpectedFile, again: ExpectedFile, index: str) -> Iterator[Contradiction]:
    """Yield what a later index states of an archive that an earlier one states otherwise."""
    for what, field in (("bytes", "size"), ("samples", "n_items"), ("digest", "digest")):
        said, found = getattr(known, field), getattr(again, field)
        if None not in {said, found} and said != found:
            found_there = f"{quoted(found)} in {quoted(index)}"
            yield Contradiction(known.name, f"{what} {quoted(said)}", found_there)


def _promises(path: str, index: str) -> list[ExpectedFile]:
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


def _copies(shards: Sequence[_WidsShard], here: Collection[str]) -> Iterator[ExpectedFile]:
    """Yield a promise for each archive from elsewhere that is here; else of its path, to refuse."""
    n_named = collections.Counter(posixpath.basename(shard.url) for shard in shards)
    for shard in shards:
        name = posixpath.basename(shard.url)
        if name in here:
            if n_named[name] == 1:
                yield _promise(shard, name)
        elif shard.url.startswith("/"):
            yield _promise(shard, shard.url)


def _promise(shard: _WidsShard, name: str) -> ExpectedFile:
    md5 = f"md5:{shard.md5sum}" if shard.md5sum else None
    return ExpectedFile(name=name, size=shard.filesize, digest=md5, n_items=shard.nsamples)
