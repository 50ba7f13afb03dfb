"""What ``datasets`` keeps of what it prepared: streams of Arrow, and ``dataset_info.json`` beside.

The cache has a folder ``<name>/<config>/<version>/<hash>``, and nothing but locks above it. A data
set is prepared in ``<hash>.incomplete``, which gets its name when all is written. What `map` and
its kin made of it lies beside as ``cache-*.arrow``.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from shardproof._base import digest_lists, json
from shardproof._base.opening import is_never_a_shard, is_there, names_in, tree
from shardproof.errors import ManifestError
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest
from shardproof.probes import arrow

_INFO, _STATE, _SUFFIX = "dataset_info.json", "state.json", ".arrow"
_PART = ".incomplete"
_VERSION = re.compile(r"\d+\.\d+\.\d+")
_DEPTH = 4
_DOWNLOADS, _OTHERS = "downloads", (".lock", "CACHEDIR.TAG", *digest_lists.NAMES.values())
_IN_PART = ("a data set that is prepared", "a part: it is being prepared, or that was killed")


class _PreparedSplit(msgspec.Struct):
    dataset_name: str | None = None
    shard_lengths: list[Count] | None = None


class _PreparedInfo(msgspec.Struct):
    splits: dict[str, _PreparedSplit] | None = None


def recognizes(path: str) -> bool:
    names = names_in(path)
    if _STATE in names:  # it was saved, which is another format
        return False
    if _INFO in names and _streams(names):
        return True
    found, parts = _prepared(path)
    return bool(parts) or any(is_there(os.path.join(path, each, _INFO)) for each in found)


def _streams(names: Iterable[str]) -> list[str]:
    return [name for name in names if name.endswith(_SUFFIX) and not is_never_a_shard(name)]


def _prepared(path: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return where data sets are, and which are only in part; nothing in what is no such cache."""
    found, parts = list[str](), list[str]()
    for here, folders, others in tree(path):
        below = "" if here == path else os.path.relpath(here, path) + "/"
        shown = [name for name in others if not (name.endswith(_OTHERS) or is_never_a_shard(name))]
        if _is_versioned(here) and (_streams(shown) or shown == [_INFO]):
            found.append(below)
            folders.clear()
        elif shown:
            return [], []
        is_deep = below.count("/") >= _DEPTH
        made = [name.removesuffix(_PART) for name in folders if name.endswith(_PART)]
        parts += [below + name for name in made if _is_versioned(f"{here}/{name}")]
        hidden = (name for name in folders if is_never_a_shard(name) or name == _DOWNLOADS)
        folders[:] = [] if is_deep else sorted({*folders}.difference(hidden))
    return found, [f"{each}{_PART}" for each in parts if f"{each}/" not in found]


def _is_versioned(path: str) -> bool:
    """Whether a data set may be in a folder: it, or that above, is called as a version."""
    return any(map(_VERSION.fullmatch, path.split("/")[-2:]))


def read_manifest(path: str) -> Manifest:
    folders, parts = _prepared(path)
    folders = folders if folders or parts else [""]
    files, damaged = list[str](), [Contradiction(part, *_IN_PART) for part in parts]
    for folder in folders:
        names = _streams(names_in(os.path.join(path, folder)))
        try:
            names += _implied(json.read(path, f"{folder}{_INFO}", _PreparedInfo))
        except ManifestError as error:
            if len(folders) == 1:
                raise
            damaged.append(Contradiction(f"{folder}{_INFO}", "a list of splits", error.problem))
        files += [f"{folder}{name}" for name in sorted({*names})]
    return Manifest.at(
        path,
        f"{folders[0]}{_INFO}" if len(folders) == 1 else "",
        "datasets-cache",
        [ExpectedFile(name=name) for name in files],
        probe=arrow.probe,
        damaged=damaged,
    )


def _implied(info: _PreparedInfo) -> Iterator[str]:
    """Yield the names of the shards of each split, as `datasets` gives them."""
    for split, stated in (info.splits or {}).items():
        if stated.dataset_name is not None:  # else it was written long ago
            n_shards = len(stated.shard_lengths or ())
            numbers = [f"-{n:05}-of-{n_shards:05}" for n in range(n_shards)] or [""]
            yield from (f"{stated.dataset_name}-{split}{each}{_SUFFIX}" for each in numbers)
