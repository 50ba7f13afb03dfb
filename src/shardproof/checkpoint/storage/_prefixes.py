"""Where in a directory checkpoints are: whole or torn, unfinished, or half removed."""

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
from shardproof.checkpoint.storage._storage import CheckpointStorage, Place, storage_of

__all__ = ["Prefixes", "prefixes_among", "prefixes_in"]

_OF_A_SHARD = re.compile(r"(.*[^/])_shard_[0-9]+\.(?:shard|tensors\.json)", re.DOTALL)


class Prefixes(NamedTuple):
    """Where checkpoints are.

    Attributes:
        committed: Those with a metadata file.
        half_removed: Those whose metadata file has the name of one that is being removed.
        removals: Where there are folders into which others are moved, and files from there.
        unfinished: Those of which there are only shards and notes, with the paths of these.
    """

    committed: Sequence[Place]
    half_removed: Sequence[Place]
    removals: Sequence[Place]
    unfinished: Sequence[tuple[Place, Sequence[str]]]


def prefixes_in(directory: str | os.PathLike[str], storage: CheckpointStorage | None) -> Prefixes:
    """Return the checkpoints in a directory and in those directly in it.

    Raises:
        OSError: A directory can't be listed.
    """
    refuse_empty(directory=directory)
    found = storage_of(directory, storage)
    return prefixes_among(found, [*_entries(found, found.absolute(os.fspath(directory)), depth=1)])


def _entries(storage: CheckpointStorage, directory: str, depth: int) -> Iterator[tuple[str, bool]]:
    for name, is_directory in sorted(storage.entries(directory)):
        path = f"{directory.rstrip('/')}/{name}"
        if is_directory and depth and not removal_of(name, is_directory=True):
            yield from _entries(storage, path, depth - 1)
        elif name not in {metadata_name(""), pruned_name("")}:
            yield path, is_directory


def prefixes_among(storage: CheckpointStorage, entries: Sequence[tuple[str, bool]]) -> Prefixes:
    """Return the checkpoints of which some paths are files; of each is said if it is a directory.

    A file is no folder into which others are moved, and a directory was never in one.
    """
    paths = [path for path, _ in entries]
    committed, half_removed = (
        [Place(storage, path.removesuffix(end)) for path in paths if path.endswith(end)]
        for end in (metadata_name(""), pruned_name(""))
    )
    known = {place.path for place in (*committed, *half_removed)}
    removals = {
        Place(storage, path): begin
        for path, is_directory in entries
        if (begin := removal_of(os.path.basename(path), is_directory=is_directory))
    }
    unfinished: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        if (found := _OF_A_SHARD.fullmatch(path)) and found[1] not in known:
            unfinished[found[1]].append(path)
    begun = {place.beside(begin) for place, begin in removals.items()}
    parts = [(Place(storage, prefix), files) for prefix, files in unfinished.items()]
    parts = [part for part in parts if not begun or _removal_prefix(part[0]) not in begun]
    return Prefixes(committed, half_removed, [*removals], parts)


def _removal_prefix(place: Place) -> str:
    return place.beside(removal_prefix(place.name))
