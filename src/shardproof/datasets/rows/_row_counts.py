"""How many rows parquet files have: their ends say it, which are read alone, and not believed.

A parquet file ends with its metadata, their length in four bytes, and ``PAR1``
(https://parquet.apache.org/docs/file-format/). So two short reads tell how many rows a file has
that stays where it is. The number is written down, so that a job that is resumed need not ask.
"""

import logging
import os
import struct
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from shardproof._base import files as _files
from shardproof._base import json
from shardproof._base.fanout import over_threads
from shardproof._base.messages import quoted, shown, told, traced
from shardproof._base.opening import real_path
from shardproof._base.work import Deadline, Stop
from shardproof.errors import ManifestError, ManifestNotFoundError, ShardReadError
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Goal, Limits, ask, read_range

if TYPE_CHECKING:
    import pyarrow.parquet

logger = logging.getLogger("shardproof.fetching")

MAX_FOOTER_BYTES = 64 * 2**20
"""Longest metadata that is read: a hundred times those of a file with 1000 row groups."""

END_BYTES = 8

TO_DO = "Compare it with the original; remove a damaged copy, and it is fetched again"
"""What an error says last of a file that is damaged."""

_TAIL_BYTES = 2**16
_MAGIC = b"PAR1"
_LEAST_BYTES = 12
_THREADS = 8  # as many as a browser has to one host


def row_count(source: Source, file: RemoteFile, limits: Limits) -> int:
    """Return how many rows a parquet file of a source has; nothing but its end is read."""
    where = f"{source.url.rstrip('/')}/{file.name}"
    if file.size is None:
        goal = Goal(quoted(file.name), where, "memory")
        deadline = Deadline(limits.deadline, Stop())
        file = ask(source, file.name, goal=goal, limits=limits, deadline=deadline)
    if file.size is None:
        raise ShardReadError("its size is not known, so neither is its end", path=where)
    if file.size < _LEAST_BYTES:
        footer_bytes(b"", file.size, where)  # refuses it
    # A listing that states digests is of one commit, whose files stay the same; what it calls them
    # is not what a web server does.
    known = file if file.digest is None else None
    start = max(0, file.size - _TAIL_BYTES)
    tail = read_range(source, file.name, start, file.size, known=known, limits=limits)
    n_bytes = footer_bytes(tail[-END_BYTES:], file.size, where)
    missing = n_bytes + END_BYTES - len(tail)
    if missing > 0:
        before = start - missing
        tail = read_range(source, file.name, before, start, known=known, limits=limits) + tail
    return _rows_in(tail[-n_bytes - END_BYTES :], where)


def footer_bytes(end: bytes, size: int, where: str) -> int:
    """Return how long the metadata of a parquet file are, by its last 8 bytes and its size."""
    if size < _LEAST_BYTES:
        problem = f"expected a parquet file, {_LEAST_BYTES} bytes or more, found {size}"
        raise ShardReadError(f"{problem}. {TO_DO}", path=where)
    n_bytes, magic = struct.unpack("<I4s", end)
    if magic == b"PARE":
        raise ShardReadError("it is encrypted, and can't be read here", path=where)
    if magic != _MAGIC:
        expected = f"expected it to end with {quoted(_MAGIC)}, as parquet files do"
        problem = f"{expected}, found {quoted(magic)}"
        raise ShardReadError(f"{problem}: cut off, or another format. {TO_DO}", path=where)
    most = min(size - _LEAST_BYTES, MAX_FOOTER_BYTES)
    if not 0 < n_bytes <= most:
        problem = f"expected metadata of 1 to {most} bytes at its end, found {n_bytes} announced"
        raise ShardReadError(f"{problem}. {TO_DO}", path=where)
    return int(n_bytes)


def _rows_in(footer: bytes, where: str) -> int:
    pa = need_pyarrow()
    try:
        metadata = pa.parquet.read_metadata(pa.BufferReader(_MAGIC + footer))
    except Exception as error:
        # pyarrow has no class of its own for this: it is OSError, ValueError, or its own.
        problem = f"its metadata can't be read: {quoted(str(error), 200)}"
        raise ShardReadError(f"{problem}. {TO_DO}", path=where) from traced(error)
    check_rows(metadata, where)
    return int(metadata.num_rows)


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
    """A file that says how many rows there are in files of a certain content.

    What it can't say or keep costs a question to the source, and nothing else. With the path None
    it keeps nothing.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._known: Mapping[str, int] = {} if path is None else _read(path)
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
        data = msgspec.json.encode(_Counts({**_read(self._path), **self._new}))
        try:
            _files.make_directories(os.path.dirname(self._path))
            _files.write_whole(self._path, data)
        except OSError as error:
            logger.warning("Could not keep row counts in '%s': %s", shown(self._path), told(error))


def _read(path: str) -> dict[str, int]:
    try:
        directory, name = os.path.split(real_path(path))
        return json.read(directory, name, _Counts).row_counts
    except ManifestNotFoundError:
        return {}
    except ManifestError as error:
        logger.warning("%s; the source is asked instead", told(error))
        return {}
    except OSError as error:
        logger.warning("Could not read '%s': %s", shown(path), told(error))
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
