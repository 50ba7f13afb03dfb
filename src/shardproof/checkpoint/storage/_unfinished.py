"""Find steps that were saved in part: shards and records are there, and no metadata."""

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence

from shardproof._base.arguments import checked
from shardproof._base.messages import quoted
from shardproof.checkpoint.storage._prefixes import Prefixes, prefixes_among, prefixes_in
from shardproof.checkpoint.storage._storage import CheckpointStorage, Dated, Location, storage_of

__all__ = ["UnfinishedStep", "clock", "unfinished_at", "unfinished_of", "unfinished_steps"]

clock = time.time
"""The clock by which ages are told."""

_LONGEST_PATH = 4096
_UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))


@dataclasses.dataclass(frozen=True, slots=True)
class UnfinishedStep:
    """A step without a metadata file: its save was killed, or still runs. ``str()`` says so.

    Attributes:
        prefix: Absolute path or URL of what the names of its files begin with.
        n_shards: How many shards have their names.
        n_notes: How many ranks left a record of their shard.
        age: Seconds since one of these files was last written; None where that is not known.
    """

    prefix: str
    n_shards: int
    n_records: int
    age: float | None

    def __str__(self) -> str:
        n_files = f"{self.n_shards} shard file{'s' * (self.n_shards != 1)}"
        found = n_files if self.n_shards else f"no shard file, records of {self.n_records}"
        written = "" if self.age is None else f", last written {_in_words(self.age)} ago"
        # The one who writes the metadata removes the records after it.
        why = ", or its metadata file was removed" if not self.n_records else ""
        which = quoted(self.prefix, _LONGEST_PATH)
        return f"unfinished step {which}: {found}{written}; its save was killed or still runs{why}"


@checked
def unfinished_steps(
    path: str | os.PathLike[str], *, storage: CheckpointStorage | None = None
) -> list[UnfinishedStep]:
    """Return the steps of which shards are there, but no metadata file that makes a checkpoint.

    Args:
        path: A directory: what is in it and in its direct subdirectories; or a prefix.
        storage: By default a directory, or for a URL with ``://`` what fsspec opens.

    Raises:
        OSError: Something could not be looked at (EIO, ESTALE, EACCES).
        TypeError: An argument of the wrong type.

    Example:
        >>> import numpy as np
        >>> from shardproof.checkpoint import MultiShardSaver, unfinished_steps
        >>> path = MultiShardSaver().save_shard(f"{output_dir}/part/model", 0, {"b": np.arange(3)})
        >>> (step,) = unfinished_steps(f"{output_dir}/part")
        >>> step.n_shards, step.prefix.removeprefix(str(output_dir))
        (1, '/part/model')
    """
    found = storage_of(path, storage)
    steps = unfinished_at(Location(found, found.url(os.fspath(path))))
    try:
        return [*steps, *unfinished_of(prefixes_in(path, storage))]
    except NotADirectoryError:  # a prefix may be the name of a file, too
        return steps


def unfinished_at(location: Location) -> list[UnfinishedStep]:
    """Return the step of one prefix, if it is unfinished; raises as `unfinished_steps`."""
    found = location.storage.list(location.directory)
    entries = [(location.beside(name), is_directory) for name, is_directory in found]
    all_there = prefixes_among(location.storage, sorted(entries))
    return list(unfinished_of(all_there, location.path))


def unfinished_of(prefixes: Prefixes, only: str | None = None) -> Iterator[UnfinishedStep]:
    """Yield what is unfinished among prefixes; raises as `unfinished_steps`."""
    for location, paths in prefixes.unfinished:
        if only in {None, location.path}:
            n_shards = sum(path.endswith(".shard") for path in paths)
            age = _age(location.storage, paths)
            yield UnfinishedStep(location.path, n_shards, len(paths) - n_shards, age)


def _age(storage: CheckpointStorage, paths: Sequence[str]) -> float | None:
    if not isinstance(storage, Dated):
        return None
    times = [time for time in map(storage.modified, paths) if time is not None]
    return max(0.0, clock() - max(times)) if times else None


def _in_words(seconds: float) -> str:
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {name}"
    return f"{seconds:.0f} s"
