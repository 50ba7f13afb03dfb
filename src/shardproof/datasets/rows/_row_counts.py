"""How many rows parquet files have: their ends say it, of which nothing else is read.

So two short reads tell how many rows a file has that stays where it is. The number is written down,
so that a job that is resumed need not ask.
"""

import io
import logging
import os
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from shardproof._base import files as _files
from shardproof._base import json
from shardproof._base.fanout import over_threads
from shardproof._base.messages import quoted, shown, told, traced
from shardproof._base.opening import real_path
from shardproof._base.work import Deadline, Stop
from shardproof.errors import FetchError, ManifestError, ManifestNotFoundError, ShardReadError
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Goal, Limits, ask, read_range

if TYPE_CHECKING:
    import pyarrow.parquet

logger = logging.getLogger("shardproof.fetching")

MAX_READ_BYTES = 64 * 2**20
"""Longest end that is read: a hundred times that of a file with 1000 row groups."""

TO_DO = "Compare it with the original; remove a damaged copy, and it is fetched again"
"""What an error says last of a file that is damaged."""

_THREADS = 8  # as many as a browser has to one host


def row_count(source: Source, file: RemoteFile, limits: Limits) -> int:
    """Return how many rows a parquet file of a source has."""
    pa = need_pyarrow()
    where = f"{source.url.rstrip('/')}/{file.name}"
    if file.size is None:
        goal = Goal(quoted(file.name), where, "memory")
        deadline = Deadline(limits.deadline, Stop())
        file = ask(source, file.name, goal=goal, limits=limits, deadline=deadline)
    if file.size is None:
        raise ShardReadError("its size is not known, so neither is its end", path=where)
    try:
        metadata = pa.parquet.read_metadata(_RemoteShard(source, file, file.size, limits))
    except FetchError:
        raise
    except Exception as error:
        # pyarrow has no class of its own for this: it is OSError, ValueError, or its own.
        found = quoted(str(error), 200)
        problem = f"expected a parquet file whose end can be read, found none: {found}"
        raise ShardReadError(f"{problem}. {TO_DO}", path=where) from traced(error)
    check_rows(metadata, where)
    return int(metadata.num_rows)


class _RemoteShard(io.RawIOBase):
    """A file of a source as one of Python, for pyarrow, which asks for its end in short reads."""

    def __init__(self, source: Source, file: RemoteFile, size: int, limits: Limits) -> None:
        self._source, self._file, self._size, self._limits = source, file, size, limits
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_CUR: self._at, os.SEEK_END: self._size}.get(whence, 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        start, stop = self._at, self._size if size < 0 else min(self._at + size, self._size)
        if stop - start > MAX_READ_BYTES:
            problem = f"expected an end of at most {MAX_READ_BYTES} bytes, found {stop - start}"
            raise ValueError(problem)
        if start >= stop:
            return b""
        # A listing that states digests is of one commit, whose files stay the same; what it calls
        # them is not what a web server does.
        known = self._file if self._file.digest is None else None
        name, limits = self._file.name, self._limits
        data = read_range(self._source, name, start, stop, known=known, limits=limits)
        self._at += len(data)
        return data


def check_rows(metadata: "pyarrow.parquet.FileMetaData", where: str) -> None:
    """Raise `ShardReadError` where the number of rows is not what the row groups come to."""
    counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    if metadata.num_rows != sum(counts) or min(counts, default=0) < 0:
        found = f"{sum(counts)} in {len(counts)} row groups"
        problem = f"expected {metadata.num_rows} rows, as its metadata say, found {found}"
        raise ShardReadError(f"{problem}. {TO_DO}", path=where)


def need_pyarrow() -> Any:
    """Return the module pyarrow, or raise `ImportError` with the command that installs it."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 - an extra
    except ImportError as error:
        problem = "parquet files are read by pyarrow: pip install 'shardproof[hf]'"
        raise ImportError(problem) from error
    return pyarrow


class _Counts(msgspec.Struct):
    row_counts: dict[str, Annotated[int, msgspec.Meta(ge=0)]]  # by digest or identity


class CountsFile:
    """How many rows files of a certain content have; what it can't keep costs another question."""

    def __init__(self, path: str | None) -> None:
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
        if not self._new or self._path is None:
            return
        data = msgspec.json.encode(_Counts(self._read() | self._new))
        try:
            _files.make_directories(os.path.dirname(self._path))
            _files.write_whole(self._path, data)
        except OSError as error:
            logger.warning("Could not keep row counts in '%s': %s", shown(self._path), told(error))

    def _read(self) -> dict[str, int]:
        if self._path is None:
            return {}
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
