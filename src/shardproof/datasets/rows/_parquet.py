"""Parquet: the rows of a local file from any row on, and how many rows one elsewhere has."""

import functools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from shardproof._base.messages import quoted, shown, traced
from shardproof._base.work import Deadline
from shardproof.errors import ShardReadError
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Goal, Limits, ask, read_range

if TYPE_CHECKING:
    import pyarrow.parquet

_END_BYTES = 2**16  # that are read first, of a file elsewhere
_MAX_READ_BYTES = 64 * 2**20  # a hundred times the end of a file with 1000 row groups
_TO_DO = "Compare it with the original; remove a damaged copy, and it is fetched again"
_BUFFER_BYTES = 2**20
_BATCH_BYTES = 4 * 2**20
_MAX_ROWS = 2**16
_ROWS = 256


class ParquetShard:
    """One parquet file that is open; in memory are a batch, and of each column a page."""

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> None:
        pa = need_pyarrow()
        self._path = os.fspath(path)
        self._source = self._asked(pa.OSFile, self._path)
        try:
            size = self._asked(self._source.size)
            end = self._asked(self._source.read_at, min(8, size), max(0, size - 8))
            _length_of_end(end, size, self._path)
            self._file = self._asked(
                pa.parquet.ParquetFile,
                self._source,
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,  # which would hold whole row groups
                page_checksum_verification=True,
            )
            _check_rows(self._file.metadata, self._path)
            self._columns = None if columns is None else list(columns)
            if self._columns:  # else no schema is made, which takes long for many columns
                names = self._file.schema_arrow.names
                if missing := [name for name in self._columns if name not in names]:
                    lacking, some = (", ".join(map(quoted, n)) for n in (missing, names[:20]))
                    raise ValueError(f"columns: '{shown(self._path)}' has no {lacking}, but {some}")
        except BaseException:
            self._source.close()
            raise
        self.n_rows: int = self._file.metadata.num_rows

    def close(self) -> None:
        self._file.close()
        self._source.close()

    def batches(self, start: int, size: int | None = None) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the rows from ``start`` on, ``size`` or about 4 MiB at once."""
        metadata = self._file.metadata
        for group in range(metadata.num_row_groups):
            n_rows = metadata.row_group(group).num_rows
            if start < n_rows:
                yield from self._of_group(group, start, size)
            start = max(0, start - n_rows)

    def rows(self, start: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows from ``start`` on as dicts, some at once; raises as `batches`."""
        for batch in self.batches(start):
            for first in range(0, batch.num_rows, _ROWS):
                # Bytes that are no UTF-8 are found here, not in decoding.
                yield self._asked(batch.slice(first, _ROWS).to_pylist)

    def table(self, start: int) -> "pyarrow.Table":
        """Return all rows from ``start`` on at once; raises as `batches`."""
        pa = need_pyarrow()
        schema = self._file.schema_arrow
        if self._columns is not None:
            schema = pa.schema([schema.field(name) for name in self._columns], schema.metadata)
        return pa.Table.from_batches(list(self.batches(start)), schema)

    def _of_group(self, group: int, skip: int, size: int | None) -> Iterator["pyarrow.RecordBatch"]:
        self._check_columns(group)
        metadata = self._file.metadata.row_group(group)
        expected = metadata.num_rows
        row_bytes = max(1, metadata.total_byte_size // max(1, expected))
        # So many rows make a batch of the usual size; large ones skip faster.
        n_read = max(1, min(_MAX_ROWS, _BATCH_BYTES // int(row_bytes)))
        if size is not None:
            n_read = max(1, n_read // size) * size
        batches = self._asked(
            self._file.iter_batches, n_read, row_groups=[group], columns=self._columns
        )
        found = 0
        while (batch := self._asked(next, batches, None)) is not None:
            if self._columns is not None:
                batch = batch.select(self._columns)
            for start in range(max(0, skip - found), batch.num_rows, size or n_read):
                yield batch.slice(start, size or n_read)
            found += batch.num_rows
        if found != expected:
            problem = f"row group {group}: expected {expected} rows, found {found}"
            raise ShardReadError(f"{problem}. {_TO_DO}", path=self._path)

    def _check_columns(self, group: int) -> None:
        """Refuse columns of another length than the row group's: pyarrow would leave rows out."""
        metadata = self._file.metadata
        row_group = metadata.row_group(group)
        for n in range(row_group.num_columns):
            column, expected = row_group.column(n), row_group.num_rows
            is_flat = not metadata.schema.column(n).max_repetition_level
            if is_flat and column.num_values != expected:
                where = f"row group {group}, column {quoted(column.path_in_schema)}"
                problem = f"expected {expected} rows, found {column.num_values}"
                raise ShardReadError(f"{where}: {problem}. {_TO_DO}", path=self._path)

    def _asked(self, work: Any, *arguments: Any, **keywords: Any) -> Any:
        """Return what pyarrow returns; of a damaged file it raises `ShardReadError` instead."""
        try:
            return work(*arguments, **keywords)
        except MemoryError:
            raise
        except Exception as error:
            # There is no class for a damaged file: it is ArrowInvalid, OSError, ValueError, ...
            problem = "expected an intact parquet file, found one that pyarrow can't read, "
            problem += f"{type(error).__name__}: {quoted(str(error), 300)}. {_TO_DO}"
            errno = error.errno if isinstance(error, OSError) else None
            raise ShardReadError(problem, path=self._path, errno=errno) from traced(error)


def row_count(source: Source, file: RemoteFile, limits: Limits) -> int:
    """Return how many rows a parquet file of a source has, by its end: in two short requests."""
    pa = need_pyarrow()
    where = f"{source.url.rstrip('/')}/{file.name}"
    if file.size is None:
        goal = Goal(quoted(file.name), where, "memory")
        file = ask(source, file.name, goal=goal, limits=limits, deadline=Deadline(limits.deadline))
    size = file.size
    if size is None:
        raise ShardReadError("its size is not known, so neither is its end", path=where)
    # Listed with a digest, it is of a commit, and stays as it is; a web server calls it otherwise.
    known = file if file.digest is None else None
    read = functools.partial(read_range, source, file.name, known=known, limits=limits)
    first = max(0, size - _END_BYTES)
    end = read(first, size) if size else b""
    start = size - 8 - _length_of_end(end, size, where)
    if 0 <= start < first:
        end = read(start, first) + end
    try:
        metadata = pa.parquet.read_metadata(pa.BufferReader(end))
    except Exception as error:
        # pyarrow has no class of its own for this: it is OSError, ValueError, or its own.
        found = quoted(str(error), 200)
        problem = f"expected a parquet file whose end can be read, found none: {found}"
        raise ShardReadError(f"{problem}. {_TO_DO}", path=where) from traced(error)
    _check_rows(metadata, where)
    return int(metadata.num_rows)


def _length_of_end(end: bytes, size: int, path: str) -> int:
    """Return how long an end says that it is; refuse a length that none has."""
    # In memory it takes many times that.
    n_bytes = int.from_bytes(end[-8:-4], "little") if end.endswith(b"PAR1") else 0
    if _MAX_READ_BYTES < n_bytes <= size - 8:  # else pyarrow says that it is longer than the file
        problem = f"expected an end of at most {_MAX_READ_BYTES} bytes, found {n_bytes}"
        raise ShardReadError(f"{problem}. {_TO_DO}", path=path)
    return n_bytes


def _check_rows(metadata: "pyarrow.parquet.FileMetaData", where: str) -> None:
    """Raise `ShardReadError` where the number of rows is not what the row groups come to."""
    counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    if metadata.num_rows != sum(counts) or min(counts, default=0) < 0:
        found = f"{sum(counts)} in {len(counts)} row groups"
        problem = f"expected {metadata.num_rows} rows, as its metadata say, found {found}"
        raise ShardReadError(f"{problem}. {_TO_DO}", path=where)


def need_pyarrow() -> Any:
    """Return the module pyarrow, or raise `ImportError` with the command that installs it."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 - an extra
    except ImportError as error:
        problem = "parquet files are read by pyarrow: pip install 'shardproof[hf]'"
        raise ImportError(problem) from error
    return pyarrow
