"""Remove old checkpoints, and never the last whole one."""

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence

from shardproof._base.arguments import checked, count
from shardproof._base.messages import told
from shardproof.checkpoint.pruning._removal import finish, finish_given_up, remove
from shardproof.checkpoint.save._leftovers import sweep_leftovers
from shardproof.checkpoint.storage._prefixes import Prefixes, prefixes_in
from shardproof.checkpoint.storage._storage import CheckpointStorage, Location, holding, storage_of
from shardproof.checkpoint.verify._latest import Candidate, is_whole, newest_first
from shardproof.report import Level

__all__ = ["prune"]

logger = logging.getLogger("shardproof.checkpoint")


@checked
def prune(
    path: str | os.PathLike[str],
    *,
    keep: int = 3,
    storage: CheckpointStorage | None = None,
    level: Level = "valid",
) -> list[str]:
    """Remove the checkpoints of old steps; return the prefixes that were removed.

    The newest ``keep`` steps that have a whole checkpoint stay, and all that is newer. What is
    older goes, whole or torn. Shards without metadata stay: somebody may be saving them. Without a
    whole checkpoint nothing goes.

    A removal that is interrupted leaves the checkpoint whole, or without its metadata file, and
    the next call finishes it; the log tells of one that another user began and that this one may
    not finish. Only files that a metadata file names are removed, unless a save that has begun
    since has put another in their place; and what a kill of a save has left beside a checkpoint.
    One at which somebody saves is passed over. Nothing goes where a link leads to, be it that one
    is put in the place of a subdirectory meanwhile.

    Args:
        path: A directory: checkpoints are in it, or in its direct subdirectories.
        keep: How many steps stay.
        storage: By default a directory, or for a URL with ``://`` what fsspec opens.
        level: How hard to look before a checkpoint counts as whole.

    Raises:
        OSError: Something can't be listed, looked at or removed.
        TypeError: An argument of the wrong type.
        ValueError: ``keep`` below 1.

    Example:
        >>> from shardproof.checkpoint import prune
        >>> prune(output_dir, keep=3)
        []
    """
    count("keep", keep, 1)
    found = storage_of(path, storage)
    with holding(found, found.url(os.fspath(path))) as held:
        prefixes = prefixes_in(path, held)
        _sweep(prefixes)
        removed = [location for folder in prefixes.removals if (location := _finished(folder))]
        removed += [location for location in prefixes.half_removed if finish_given_up(location)]
        for old in _old(newest_first(prefixes.committed), keep, level):
            if remove(old.location, old.metadata):
                removed.append(old.location)
    return [location.path for location in removed]


def _finished(folder: Location) -> Location | None:
    """Do as `finish`; a removal that this user may not finish waits for the one who began it."""
    try:
        return finish(folder)
    except PermissionError as error:
        logger.warning("Passing over a removal that somebody else began: %s", told(error))
        return None


def _old(candidates: Sequence[Candidate], keep: int, level: Level) -> Iterator[Candidate]:
    kept: set[int] = set()
    for candidate in candidates:
        step = candidate.metadata.step
        if step in kept:
            continue
        if len(kept) == keep:
            yield candidate
        elif is_whole(candidate, level):
            kept.add(step)


def _sweep(prefixes: Prefixes) -> None:
    """Remove what kills left, while there are metadata still that tell what is not needed."""
    for where, storage in {
        location.directory: location.storage for location in prefixes.committed
    }.items():
        sweep_leftovers(storage, where)
        with contextlib.suppress(FileNotFoundError):  # the directory was removed
            storage.sweep(where)
