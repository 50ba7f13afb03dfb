"""The lines of a local text file as rows, from any line on."""

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from shardproof._base.messages import quoted, told
from shardproof._base.names import NotRegularError, file_type
from shardproof.datasets.rows._row_counts import need_pyarrow
from shardproof.errors import ShardReadError

if TYPE_CHECKING:
    import pyarrow

MAX_LINE_BYTES = 64 * 2**20
"""Longest line that is read: a file without line breaks is rather no text."""

_CHUNK_BYTES = 2**18
_BATCH_BYTES = 4 * 2**20
_ROWS = 1024


def line_count(path: str | os.PathLike[str]) -> int:
    """Return how many rows a text file has; what stands behind the last line break is one."""
    n_lines, last = 0, b"\n"
    with contextlib.closing(TextShard(path, "")) as shard, shard.reading() as file:
        while chunk := file.read(_CHUNK_BYTES):
            n_lines += chunk.count(b"\n")
            last = chunk[-1:]
    return n_lines + (last != b"\n")


class TextShard:
    r"""One text file that is open: UTF-8, a row ends with ``\n`` or ``\r\n``, empty ones count.

    Raises:
        ShardReadError: It can't be opened, or is no regular file.
    """

    n_rows: int | None = None  # not known before all is read

    def __init__(self, path: str | os.PathLike[str], text_key: str) -> None:
        self._path = os.path.abspath(path)
        self._text_key = text_key
        try:
            self._file: BinaryIO = open(self._path, "rb", opener=_opened)  # noqa: SIM115 - see close
        except (OSError, NotRegularError) as error:
            raise self._failed(error) from error

    def close(self) -> None:
        self._file.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[BinaryIO]:
        """Give the file; an `OSError` meanwhile becomes a `ShardReadError` with its path."""
        try:
            yield self._file
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError | NotRegularError) -> ShardReadError:
        if isinstance(error, NotRegularError):
            problem = f"expected a regular file, found a {told(error)}"
            return ShardReadError(problem, path=self._path)
        return ShardReadError(error.strerror or told(error), path=self._path, errno=error.errno)

    def rows(self, start: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows from ``start`` on, some at once."""
        for texts in self._texts(start, None):
            yield [{self._text_key: text} for text in texts]

    def batches(self, start: int, size: int | None = None) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the rows from ``start`` on, ``size`` at once or about 4 MiB; raises as `rows`."""
        pa = need_pyarrow()
        for texts in self._texts(start, size):
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], [self._text_key])

    def table(self, start: int) -> "pyarrow.Table":
        """Return all rows from ``start`` on; raises as `rows`."""
        pa = need_pyarrow()
        schema = pa.schema([(self._text_key, pa.string())])
        return pa.Table.from_batches(list(self.batches(start)), schema)

    def _texts(self, start: int, size: int | None) -> Iterator[list[str]]:
        with self.reading() as file:
            file.seek(0)
            missing = _skip_lines(file, start)
        if missing > 0:
            problem = f"expected {start} rows or more, found {start - missing}: is it another file?"
            raise ShardReadError(problem, path=self._path)
        row, texts, n_bytes = start, list[str](), 0
        while True:
            with self.reading() as file:
                line = file.readline(MAX_LINE_BYTES + 1)
            if not line:
                break
            if len(line) > MAX_LINE_BYTES:
                problem = f"line {row + 1}: expected at most {MAX_LINE_BYTES} bytes; is it text?"
                raise ShardReadError(problem, path=self._path)
            end = -2 if line.endswith(b"\r\n") else -1 if line.endswith(b"\n") else None
            try:
                texts.append(line[:end].decode())
            except UnicodeDecodeError as error:
                found = quoted(line[error.start : error.end])
                problem = f"line {row + 1}: expected UTF-8, found {found}"
                raise ShardReadError(problem, path=self._path) from None
            row, n_bytes = row + 1, n_bytes + len(line)
            is_full = len(texts) >= _ROWS or n_bytes >= _BATCH_BYTES
            if is_full if size is None else len(texts) == size:
                yield texts
                texts, n_bytes = [], 0
        if texts:
            yield texts


def _opened(path: str, _flags: int) -> int:
    """Open a regular file and nothing else: to open a FIFO may take for ever."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        found = file_type(os.fstat(fd).st_mode)
        if found != "regular file":
            raise NotRegularError(found)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _skip_lines(file: BinaryIO, n_lines: int) -> int:
    """Go behind so many lines; return how many were missing."""
    last = b"\n"
    while n_lines and (chunk := file.read(_CHUNK_BYTES)):
        n_found, last = chunk.count(b"\n"), chunk[-1:]
        if n_found >= n_lines:
            end = -1
            for _ in range(n_lines):
                end = chunk.index(b"\n", end + 1)
            file.seek(end + 1 - len(chunk), os.SEEK_CUR)
            return 0
        n_lines -= n_found
    return n_lines - (last != b"\n")
