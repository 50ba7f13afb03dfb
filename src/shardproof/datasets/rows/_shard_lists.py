"""The shards of a hub or a local directory, as `ShardedRows` reads them, and their row counts."""

import contextlib
import dataclasses
import logging
import os
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from shardproof._base import files, json
from shardproof._base.fanout import over_threads
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_directory, is_there, matching, names_in, real_path
from shardproof._base.work import apart, closed_apart
from shardproof.datasets.rows._lines import TextShard, line_count
from shardproof.datasets.rows._listings import Origin, opened
from shardproof.datasets.rows._parquet import ParquetShard, row_count
from shardproof.datasets.rows._specs import TextSpec
from shardproof.errors import ManifestError, ManifestNotFoundError, SourceError
from shardproof.fetching import ShardPrefetcher
from shardproof.fetching.cache import CleanupPolicy
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Limits
from shardproof.manifest import Count

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

    def paths(self, first: int) -> Generator[Path, None, None]:
        """Yield the path of each shard from ``first`` on; it is there until the next is asked."""
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(opened(self.origin))
            prefetcher = ShardPrefetcher(
                source,
                [file.name for file in self.files[first:]],
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
        if content := _content_of(self.files[index]):
            _keep_counts(self.counts_path, {content: shard.n_rows})
        return shard

    def plan(self, n_rows: int) -> "ResumePlan":
        """Return where so many rows are done; the ends of the files are read for it, no more."""
        names = [file.name for file in self.files]

        def planned(_: object) -> ResumePlan:
            with (
                opened(self.origin) as source,
                contextlib.closing(self._row_counts(source)) as counts,
            ):
                return plan_of(names, counts, n_rows)

        return apart(planned) if n_rows else plan_of(names, (), 0)

    def _row_counts(self, source: Source) -> Generator[int, None, None]:
        """Yield how many rows each file has; what is not known yet is asked for, and kept."""
        known, new = known_counts(self.counts_path), dict[str, int]()

        def count_rows(some: Sequence[RemoteFile]) -> list[tuple[str, int]]:
            contents = ((file, _content_of(file)) for file in some)
            return [
                (name, known[name] if name in known else row_count(source, file, self.limits))
                for file, name in contents
            ]

        asked = over_threads(count_rows, self.files, _THREADS, chunk=1)
        try:
            for _, found in asked:
                new.update(found)
                yield from (n_rows for _, n_rows in found)
        finally:
            asked.close()
            new.pop("", None)
            _keep_counts(self.counts_path, new)


def _content_of(file: RemoteFile) -> str:
    """Return what tells the content of a file from any other; nothing where the source does not."""
    return file.digest or file.identity or ""


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

    def plan(self, n_rows: int) -> "ResumePlan":
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
    return TextShards(tuple(found), tuple(map(_sized, found)), spec.text_key, f"file://{directory}")


def _sized(path: str) -> RemoteFile:
    try:
        return RemoteFile(os.path.basename(path), os.stat(path).st_size)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceError(f"there is no file '{shown(path)}'", kind="unusable") from error


class _Counts(msgspec.Struct):
    row_counts: dict[str, Count]  # by digest or identity


def known_counts(path: str) -> dict[str, int]:
    """Return how many rows files of a certain content have, as far as it was kept."""
    try:
        return json.read(*os.path.split(real_path(path)), _Counts).row_counts
    except ManifestNotFoundError:
        pass
    except (ManifestError, OSError) as error:
        logger.warning("%s; the source is asked for row counts instead", told(error))
    return {}


def _keep_counts(path: str, new: dict[str, int]) -> None:
    """Keep how many rows files have; what can't be kept costs another question."""
    known = known_counts(path)
    if new.keys() <= known.keys():
        return
    try:
        files.make_directories(os.path.dirname(path))
        files.write_whole(path, msgspec.json.encode(_Counts(new | known)))
    except OSError as error:
        logger.warning("Could not keep row counts in '%s': %s", shown(path), told(error))


class ResumePlan(NamedTuple):
    """Where to go on.

    Attributes:
        data_files: The files that are left, in order; none if every row is done.
        in_shard_offset: How many rows of the first of them are done.
        shard_label: For a log: ``data/train-00001.parquet (2/5) row 17``.
    """

    data_files: tuple[str, ...]
    in_shard_offset: int
    shard_label: str


def plan_of(names: Sequence[str], counts: Iterable[int], row_offset: int) -> ResumePlan:
    """Return where to go on after so many rows; ``counts`` are asked for only as far as needed."""
    index, left = 0, row_offset
    if row_offset:
        for count in counts:
            if left < count:
                break
            index, left = index + 1, left - count
        else:
            if left:
                raise ValueError(
                    f"row_offset: expected at most {row_offset - left}, the rows of all "
                    f"{len(names)} files, found {row_offset}: it was counted over other data"
                )
    label = f"behind the last of {len(names)} shards"
    if index < len(names):
        label = f"{names[index]} ({index + 1}/{len(names)}) row {left}"
    return ResumePlan(tuple(names[index:]), left, label)
