"""Find checkpoints in a directory: whole or torn, unfinished, or half removed."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardproof._base.paths import refuse_empty
from shardproof.checkpoint.format._layout import (
    metadata_name,
    pruned_name,
    removal_of,
    removal_prefix,
)
from shardproof.checkpoint.storage._storage import (
    CheckpointStorage,
    Location,
    path_in,
    storage_of,
)

__all__ = ["Prefixes", "prefixes_among", "prefixes_in"]

_OF_A_SHARD = re.compile(r"(.*[^/])_shard_[0-9]+\.(?:shard|tensors\.json)", re.DOTALL)


class Prefixes(NamedTuple):
    """The checkpoints of a directory, by their state.

    Attributes:
        committed: Those with a metadata file.
        half_removed: Those whose metadata file has the name of one that is being removed.
        removals: Where there are folders into which others are moved, and files from there.
        unfinished: Those of which there are only shards and records, with the paths of these.
    """

    committed: Sequence[Location]
    half_removed: Sequence[Location]
    removals: Sequence[Location]
    unfinished: Sequence[tuple[Location, Sequence[str]]]


def prefixes_in(path: str | os.PathLike[str], storage: CheckpointStorage | None) -> Prefixes:
    """Find the checkpoints in a directory and in those directly in it.

    Raises:
        OSError: A directory can't be listed.
    """
    refuse_empty(path=path)
    found = storage_of(path, storage)
    return prefixes_among(found, [*_listed(found, found.url(os.fspath(path)), depth=1)])


def _listed(storage: CheckpointStorage, directory: str, depth: int) -> Iterator[tuple[str, bool]]:
    for name, is_directory in sorted(storage.list(directory)):
        path = path_in(directory, name)
        if directory.endswith("//"):  # the root of a store, of which some begin paths with a slash
            path = storage.url(path)
        if is_directory and depth and not removal_of(name, is_directory=True):
            yield from _listed(storage, path, depth - 1)
        elif name not in {metadata_name(""), pruned_name("")}:
            yield path, is_directory


def prefixes_among(storage: CheckpointStorage, entries: Sequence[tuple[str, bool]]) -> Prefixes:
    """Find the checkpoints whose files are among some paths, each with whether it is a directory.

    A file is no folder into which others are moved, and a directory was never in one.
    """
    paths = [path for path, _ in entries]
    committed, half_removed = (
        [Location(storage, path.removesuffix(end)) for path in paths if path.endswith(end)]
        for end in (metadata_name(""), pruned_name(""))
    )
    known = {location.path for location in (*committed, *half_removed)}
    removals = {
        Location(storage, path): begin
        for path, is_directory in entries
        if (begin := removal_of(os.path.basename(path), is_directory=is_directory))
    }
    unfinished: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        if (found := _OF_A_SHARD.fullmatch(path)) and found[1] not in known:
            unfinished[found[1]].append(path)
    begun = {location.beside(begin) for location, begin in removals.items()}
    parts = [(Location(storage, prefix), files) for prefix, files in unfinished.items()]
    parts = [
        (location, files)
        for location, files in parts
        if not begun or location.beside(removal_prefix(location.name)) not in begun
    ]
    return Prefixes(committed, half_removed, [*removals], parts)
