"""The lines of a local text file as rows, from any line on."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from shardproof._base.messages import quoted, told
from shardproof._base.names import NotRegularError, open_followed
from shardproof.datasets.rows._parquet import need_pyarrow
from shardproof.errors import ShardReadError

if TYPE_CHECKING:
    import pyarrow

MAX_LINE_BYTES = 64 * 2**20  # longest line that is read: without line breaks it is rather no text
_CHUNK_BYTES = 2**18
_BATCH_BYTES = 4 * 2**20
_ROWS = 1024


def line_count(path: str | os.PathLike[str]) -> int:
    """Return how many rows a text file has; what stands behind the last line break is one."""
    with contextlib.closing(TextShard(path, "")) as shard:
        return shard.skip_lines(sys.maxsize)


class TextShard:
    r"""One text file that is open: UTF-8, a row ends with ``\n`` or ``\r\n``, empty ones count."""

    n_rows: int | None = None  # not known before all is read

    def __init__(self, path: str | os.PathLike[str], text_key: str) -> None:
        self._path = os.path.abspath(path)
        self._text_key = text_key
        with self._failing():
            self._file: BinaryIO = open(open_followed(self._path), "rb")  # noqa: SIM115 - see close

    def close(self) -> None:
        self._file.close()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise a `ShardReadError` with the path for an `OSError`."""
        try:
            yield
        except NotRegularError as error:
            problem = f"expected a regular file, found a {error.found}"
            raise ShardReadError(problem, path=self._path) from error
        except OSError as error:
            problem = error.strerror or told(error)
            raise ShardReadError(problem, path=self._path, errno=error.errno) from error

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

    def skip_lines(self, n_lines: int) -> int:
        """Go behind so many lines; return how many there are, if they are fewer."""
        n_left, last = n_lines, b"\n"
        with self._failing():
            while n_left and (chunk := self._file.read(_CHUNK_BYTES)):
                n_found, last = chunk.count(b"\n"), chunk[-1:]
                if n_found >= n_left:
                    end = -1
                    for _ in range(n_left):
                        end = chunk.index(b"\n", end + 1)
                    self._file.seek(end + 1 - len(chunk), os.SEEK_CUR)
                    return n_lines
                n_left -= n_found
        return n_lines - n_left + (last != b"\n")

    def _texts(self, start: int, size: int | None) -> Iterator[list[str]]:
        self._file.seek(0)
        if (n := self.skip_lines(start)) < start:
            problem = f"expected {start} rows or more, found {n}: is it another file?"
            raise ShardReadError(problem, path=self._path)
        texts, n_bytes = list[str](), 0
        for n, line in enumerate(self._lines(), start + 1):
            n_bytes += len(line)
            texts.append(self._text(line, n))
            is_full = len(texts) >= _ROWS or n_bytes >= _BATCH_BYTES
            if is_full if size is None else len(texts) == size:
                yield texts
                texts, n_bytes = [], 0
        if texts:
            yield texts

    def _lines(self) -> Iterator[bytes]:
        with self._failing():
            while line := self._file.readline(MAX_LINE_BYTES + 1):
                yield line

    def _text(self, line: bytes, number: int) -> str:
        if len(line) > MAX_LINE_BYTES:
            problem = f"line {number}: expected at most {MAX_LINE_BYTES} bytes; is it text?"
            raise ShardReadError(problem, path=self._path)
        try:
            return (line[:-2] if line[-2:] == b"\r\n" else line.removesuffix(b"\n")).decode()
        except UnicodeDecodeError as error:
            problem = f"expected UTF-8, found {quoted(line[error.start : error.end])}"
            raise ShardReadError(f"line {number}: {problem}", path=self._path) from None
