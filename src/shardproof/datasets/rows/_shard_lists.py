"""The shards of a hub or of a local directory, as `ShardedRows` reads them, and their row counts.

How many rows a shard has is written down, so that a job that is resumed need not ask.
"""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from shardproof._base import files, json
from shardproof._base.fanout import over_threads
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_directory, is_there, matching, names_in, real_path
from shardproof._base.work import apart, closed_apart
from shardproof.datasets.rows._lines import TextShard, line_count
from shardproof.datasets.rows._listings import Origin, opened
from shardproof.datasets.rows._parquet import ParquetShard, row_count
from shardproof.datasets.rows._positions import ResumePlan, plan_of
from shardproof.datasets.rows._specs import TextSpec
from shardproof.errors import (
    ManifestError,
    ManifestNotFoundError,
    SourceError,
)
from shardproof.fetching import ShardPrefetcher
from shardproof.fetching.cache import CleanupPolicy
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Limits

logger = logging.getLogger("shardproof.fetching")

_THREADS = 8  # as many as a browser has to one host


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParquetShards:
    """Parquet files of a source, each fetched when it is needed and those after it meanwhile."""

    origin: Origin  # an address, which each iteration opens for itself, or what is open
    url: str  # for messages and states
    files: Sequence[RemoteFile]
    counts_path: str  # where it is kept how many rows they have
    cache_dir: str | os.PathLike[str] = "data"
    split: str | None = None
    columns: tuple[str, ...] | None = None
    lookahead: int = 1
    policy: CleanupPolicy = dataclasses.field(default=CleanupPolicy("auto"))
    limits: Limits = dataclasses.field(default_factory=Limits)

    @property
    def _names(self) -> list[str]:
        return [file.name for file in self.files]

    def paths(self, first: int) -> Generator[Path, None, None]:
        """Yield the path of each shard from ``first`` on; it is there until the next is asked."""
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(opened(self.origin))
            prefetcher = ShardPrefetcher(
                source,
                self._names[first:],
                self.cache_dir,
                lookahead=self.lookahead,
                **self.policy._asdict(),
                split=self.split,
                limits=self.limits,
            )
            stack.enter_context(prefetcher)
            try:
                yield from prefetcher
            finally:
                closed_apart(stack.pop_all().close)  # the collector may be what closes this

    def open(self, path: Path, index: int) -> ParquetShard:
        """Open a shard, and keep how many rows it has: a later skip need not ask, nor be online."""
        shard = ParquetShard(path, self.columns)
        counts = CountsFile(self.counts_path)
        counts.put(self.files[index], shard.n_rows)
        counts.save()
        return shard

    def plan(self, n_rows: int) -> ResumePlan:
        """Return where so many rows are done; the ends of the files are read for it, no more."""
        return apart(lambda _: self._planned(n_rows)) if n_rows else plan_of(self._names, (), 0)

    def _planned(self, n_rows: int) -> ResumePlan:
        counts = CountsFile(self.counts_path)
        with (
            opened(self.origin) as source,
            contextlib.closing(row_counts(source, self.files, counts, self.limits)) as found,
        ):
            return plan_of(self._names, found, n_rows)


@dataclasses.dataclass(frozen=True)
class TextShards:
    """Local text files, whose lines are the rows."""

    local_paths: tuple[str, ...]
    files: Sequence[RemoteFile]  # as states call them, with the sizes they had
    text_key: str
    url: str  # of the directory

    def paths(self, first: int) -> Generator[Path, None, None]:
        yield from map(Path, self.local_paths[first:])

    def open(self, path: Path, index: int) -> TextShard:  # noqa: ARG002 - as others have it
        return TextShard(path, self.text_key)

    def plan(self, n_rows: int) -> ResumePlan:
        """Return where so many rows are done; line breaks are counted for it."""
        return plan_of(self.local_paths, map(line_count, self.local_paths), n_rows)


def text_shards(spec: TextSpec, data_files: str | Sequence[str] | None) -> TextShards:
    """Return the files that a spec means, sorted, or those of ``data_files`` in their order."""
    path = os.path.abspath(spec.path)
    directory, pattern = os.path.split(path)
    if data_files is not None:
        names = [data_files] if isinstance(data_files, str) else data_files
        found = [os.path.abspath(name) for name in names]
    elif is_there(path):
        found = [path]
    else:
        found = [os.path.join(directory, name) for name in matching(directory, pattern)]
        if not found:
            there = "there is no such directory"
            if is_directory(directory):
                there = f"in its directory there are {len(names_in(directory))} others"
            raise SourceError(f"no file is meant by '{shown(path)}': {there}", kind="unusable")
    files = tuple(map(_sized, found))
    return TextShards(tuple(found), files, spec.text_key, f"file://{directory}")


def _sized(path: str) -> RemoteFile:
    try:
        return RemoteFile(os.path.basename(path), os.stat(path).st_size)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceError(f"there is no file '{shown(path)}'", kind="unusable") from error


class _Counts(msgspec.Struct):
    row_counts: dict[str, Annotated[int, msgspec.Meta(ge=0)]]  # by digest or identity


class CountsFile:
    """How many rows files of a certain content have; what it can't keep costs another question."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known = self._read()
        self._new: dict[str, int] = {}

    def get(self, file: RemoteFile) -> int | None:
        """Return how many rows a file has, if that is known."""
        return self._known.get(file.digest or file.identity or "")

    def put(self, file: RemoteFile, n_rows: int) -> None:
        content = file.digest or file.identity
        if content and content not in self._known:
            self._new[content] = n_rows

    def save(self) -> None:
        if not self._new:
            return
        data = msgspec.json.encode(_Counts(self._read() | self._new))
        try:
            files.make_directories(os.path.dirname(self._path))
            files.write_whole(self._path, data)
        except OSError as error:
            logger.warning("Could not keep row counts in '%s': %s", shown(self._path), told(error))

    def _read(self) -> dict[str, int]:
        try:
            return json.read(*os.path.split(real_path(self._path)), _Counts).row_counts
        except ManifestNotFoundError:
            pass
        except (ManifestError, OSError) as error:
            logger.warning("%s; the source is asked for row counts instead", told(error))
        return {}


def row_counts(
    source: Source, files: Sequence[RemoteFile], counts: CountsFile, limits: Limits
) -> Generator[int, None, None]:
    """Yield how many rows each file has, in order; what is not known yet is asked for, and kept."""

    def count_rows(some: Sequence[RemoteFile]) -> list[tuple[RemoteFile, int]]:
        known = [(file, counts.get(file)) for file in some]
        return [
            (file, row_count(source, file, limits) if n_rows is None else n_rows)
            for file, n_rows in known
        ]

    asked = over_threads(count_rows, files, _THREADS, chunk=1)
    try:
        for _, found in asked:
            for file, n_rows in found:
                counts.put(file, n_rows)
                yield n_rows
    finally:
        asked.close()
        counts.save()
