"""Tell where a checkpoint is, and which there are in a directory, whole, torn or half removed."""

import dataclasses
import hashlib
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardproof._base.arguments import checked
from shardproof._base.messages import quoted, shown
from shardproof._base.opening import is_of_a_desktop, refuse_empty
from shardproof.checkpoint._format import METADATA_END, PRUNED_END
from shardproof.checkpoint.storage._fsspec_storage import FsspecStorage
from shardproof.checkpoint.storage._local_storage import LocalStorage
from shardproof.checkpoint.storage._storage import CheckpointStorage

clock = time.time  # the clock by which ages are told
_LONGEST_PATH = 4096
_OF_A_SHARD = re.compile(r"(.*[^/])_shard_[0-9]+\.(?:shard|tensors\.json)", re.DOTALL)
_UNITS = ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"))


class Location(NamedTuple):
    """The prefix of a checkpoint, and the storage in which it is."""

    storage: CheckpointStorage
    path: str

    @property
    def directory(self) -> str:
        """Where the files are."""
        head = self.path[: self.path.rfind("/") + 1]
        return head if head == "/" or head.endswith("//") else head[:-1]

    @property
    def name(self) -> str:
        """What the names of the files begin with."""
        return os.path.basename(self.path)

    @property
    def metadata(self) -> str:
        """The path of the metadata file."""
        return self.path + METADATA_END

    @property
    def pruned(self) -> str:
        """The path of the copy of the metadata while the checkpoint is being removed."""
        return self.path + PRUNED_END

    def record(self, rank: int) -> str:
        """Return the path of the file in which a rank describes its shard."""
        return f"{self.path}_shard_{rank}.tensors.json"

    def beside(self, name: str) -> str:
        """Return the path of another file of the same directory."""
        return path_in(self.directory, name)

    def pending(self, token: str) -> str:
        """Return the path of a file that is about to get its own."""
        return self.beside(f"{pending_prefix(self.name)}{token}.tmp")

    @property
    def in_the_making(self) -> str:
        """The one path of metadata that are about to get theirs, which others may remove."""
        return self.pending(f"{0:016x}")


def pending_prefix(prefix_name: str) -> str:
    """Return what the names of a prefix's files begin with until they get their own."""
    # A prefix's name has as many letters here as any other's: names have at most 255 bytes.
    return f".shardproof-{hashlib.sha256(os.fsencode(prefix_name)).hexdigest()[:16]}-pending-"


def path_in(directory: str, name: str) -> str:
    """Return the path of a file in a directory, which may be the root of a storage."""
    return f"{directory}{name}" if directory.endswith("/") else f"{directory}/{name}"


def location_of(prefix: str | os.PathLike[str], storage: CheckpointStorage | None) -> Location:
    """Return where a prefix is: in the storage that is given, else by what it looks like."""
    refuse_empty(prefix=prefix)
    path = os.fspath(prefix)
    if path.rpartition("/")[2] in {"", ".", ".."}:  # files would have no names
        example = os.path.join(path, "model")
        problem = f"expected a path that ends with a name, such as '{shown(example)}', found"
        raise ValueError(f"prefix: {problem} '{shown(path)}'")
    found = storage_of(path, storage)
    return Location(found, found.url(path))


def storage_of(
    path: str | os.PathLike[str], storage: CheckpointStorage | None
) -> CheckpointStorage:
    """Return the storage that is given, else the one that a path or URL looks like."""
    if storage is not None:
        return storage
    text = os.fspath(path)
    return FsspecStorage.from_url(text) if "://" in text else LocalStorage()


class Prefixes(NamedTuple):
    """The checkpoints of a directory, by their state."""

    committed: Sequence[Location]  # with a metadata file
    half_removed: Sequence[Location]  # that are being removed, and whose metadata have a copy
    unfinished: Sequence[tuple[Location, Sequence[str]]]  # only shards and records: their paths


def prefixes_in(path: str | os.PathLike[str], storage: CheckpointStorage | None) -> Prefixes:
    """Find the checkpoints in a directory and in those directly in it."""
    refuse_empty(path=path)
    found = storage_of(path, storage)
    return _prefixes_among(found, [*_listed(found, found.url(os.fspath(path)), depth=1)])


def _listed(storage: CheckpointStorage, directory: str, depth: int) -> Iterator[str]:
    """Yield the paths of files in a directory, and in those in it as deep as that."""
    for name, is_directory in sorted(storage.list(directory)):
        path = path_in(directory, name)
        if directory.endswith("//"):  # the root of a store, of which some begin paths with a slash
            path = storage.url(path)
        if is_directory and depth:
            yield from _listed(storage, path, depth - 1)
        elif name not in {METADATA_END, PRUNED_END} and not is_of_a_desktop(name):
            yield path


def _prefixes_among(storage: CheckpointStorage, paths: Sequence[str]) -> Prefixes:
    """Find the checkpoints whose files are among paths."""
    committed, half_removed = (
        [Location(storage, path.removesuffix(end)) for path in paths if path.endswith(end)]
        for end in (METADATA_END, PRUNED_END)
    )
    known = {location.path for location in (*committed, *half_removed)}
    by_prefix: defaultdict[str, list[str]] = defaultdict(list)
    for path in paths:
        if (found := _OF_A_SHARD.fullmatch(path)) and found[1] not in known:
            by_prefix[found[1]].append(path)
    unfinished = [(Location(storage, prefix), files) for prefix, files in by_prefix.items()]
    return Prefixes(committed, half_removed, unfinished)


@dataclasses.dataclass(frozen=True, slots=True)
class UnfinishedStep:
    """A step without a metadata file: its save was killed, or still runs. ``str()`` says so.

    Attributes:
        prefix: Absolute path or URL of what the names of its files begin with.
        n_shards: How many shards have their names.
        n_records: How many ranks left a record of their shard.
        age: Seconds since one of these files was last written; None where that is not known.
    """

    prefix: str
    n_shards: int
    n_records: int
    age: float | None

    def __str__(self) -> str:
        n_files = f"{self.n_shards} shard file{'s' * (self.n_shards != 1)}"
        found = n_files if self.n_shards else f"no shard file, records of {self.n_records}"
        written = ""
        if (age := self.age) is not None:
            words = (f"{age // size:.0f} {name}" for size, name in _UNITS if age >= 2 * size)
            written = f", last written {next(words, f'{age:.0f} s')} ago"
        # A save removes the records after it has written the metadata.
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
        OSError: Something could not be checked (EIO, ESTALE, EACCES).
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
    entries = [*_listed(location.storage, location.directory, depth=0)]
    return list(unfinished_of(_prefixes_among(location.storage, entries), location.path))


def unfinished_of(prefixes: Prefixes, only: str | None = None) -> Iterator[UnfinishedStep]:
    """Yield what is unfinished among prefixes; raises as `unfinished_steps`."""
    for location, paths in prefixes.unfinished:
        if only in {None, location.path}:
            n_shards = sum(path.endswith(".shard") for path in paths)
            times = [at for at in map(location.storage.modified, paths) if at is not None]
            age = max(0.0, clock() - max(times)) if times else None
            yield UnfinishedStep(location.path, n_shards, len(paths) - n_shards, age)
