"""The laws of a parquet file: its magic, its footer, and that every column chunk lies before it.

``PAR1``, column chunks, the footer in Thrift's compact protocol, its length as an ``i32``, ``PAR1``
(https://parquet.apache.org/docs/file-format/). Of the footer only those fields are read that say
where things are and how many rows there are.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from shardproof._base.messages import quoted, told
from shardproof._base.names import opened
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes._thrift import CompactReader, ThriftError

__all__ = ["ColumnChunk", "ParquetFooter", "footer_in", "footer_of", "probe", "prove", "rows_in"]

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL_BYTES = 8
_LAST_BYTES = 2**14  # what is read of the end at once: the footer of most shards, in one call
_MAX_PARSED_BYTES = 2**24
_MOST_FILES = 2**20
_PIECE_BYTES = 2**20
_MAX_HEADER_BYTES = 2**16


class ColumnChunk(NamedTuple):
    """Where the pages of a column of a row group are."""

    begin: int
    n_bytes: int


class ParquetFooter(NamedTuple):
    """What is read of a footer."""

    n_rows: int
    chunks: Sequence[ColumnChunk]  # of row groups that have rows
    rows_of_files: Mapping[str, int]  # by the file that row groups are in; in this one by no name


def probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with the structure of a file, or with its number of rows."""
    footer = footer_of(read, size)
    if not isinstance(footer, ParquetFooter):
        return footer
    if promised.n_items not in {None, footer.n_rows}:
        return Mismatch(f"{promised.n_items} rows", f"{footer.n_rows} rows")
    return None


def footer_in(data: bytes) -> ParquetFooter | Mismatch | None:
    """Return what ``_metadata`` says, a footer of row groups in other files; as `footer_of`."""
    return footer_of(lambda n_bytes, at=0: data[at : at + n_bytes], len(data), len(data))


def rows_in(root: str, names: Iterable[str]) -> int | None:
    """Return how many rows files have together; None where one is not whole."""
    n_rows = 0
    for name in names:
        try:
            with opened(name, root) as file:
                footer = None if file is None else footer_of(file, file.status.st_size)
        except OSError:  # a finding of its own
            return None
        if not isinstance(footer, ParquetFooter):
            return None
        n_rows += footer.n_rows
    return n_rows


def footer_of(
    read: Read, size: int, max_bytes: int = _MAX_PARSED_BYTES
) -> ParquetFooter | Mismatch | None:
    """Return what a file's footer says; None where it is encrypted, or too long to be read."""
    last = read(min(size, _LAST_BYTES), max(0, size - _LAST_BYTES))
    tail = last[-_TAIL_BYTES:]
    head = last[:4] if len(last) == size else read(4, 0)
    if head not in {_MAGIC, _ENCRYPTED} or tail[4:] not in {_MAGIC, _ENCRYPTED}:
        ends = f"{quoted(head)} and {quoted(tail[4:])}"
        return Mismatch("'PAR1' at the beginning and the end", ends)
    n_bytes = int.from_bytes(tail[:4], "little")
    start = size - _TAIL_BYTES - n_bytes
    if not n_bytes or start < len(_MAGIC):
        return Mismatch(f"a footer within {size} bytes", f"a length of {n_bytes}")
    if tail[4:] == _ENCRYPTED or n_bytes > max_bytes:
        return None
    at = len(last) - _TAIL_BYTES - n_bytes
    text = last[at:-_TAIL_BYTES] if at >= 0 else read(n_bytes, start)
    try:
        footer = _parsed(text)
    except (ThriftError, IndexError) as error:
        return Mismatch("a footer of parquet", told(error))
    return _misplaced(footer, start) or footer


def _misplaced(footer: ParquetFooter, end: int) -> Mismatch | None:
    for chunk in footer.chunks:
        if chunk.begin < len(_MAGIC) or chunk.n_bytes < 0 or chunk.begin + chunk.n_bytes > end:
            expected = f"column chunks between bytes {len(_MAGIC)} and {end}"
            return Mismatch(expected, f"one of {chunk.n_bytes} bytes at {chunk.begin}")
    n_rows = sum(footer.rows_of_files.values())
    if n_rows != footer.n_rows:
        return Mismatch(f"{footer.n_rows} rows in row groups", f"{n_rows} rows")
    return None


# The fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData, by their numbers
# (https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift).
def _parsed(text: bytes) -> ParquetFooter:
    reader, n_rows, chunks, rows = CompactReader(text), 0, list[ColumnChunk](), dict[str, int]()
    for field, kind in reader.fields():
        if field == 3:
            n_rows = reader.integer()
        elif field == 4:
            for _ in reader.items():
                _add_row_group(reader, chunks, rows)
            break  # what follows says nothing of where things are
        else:
            reader.skip(kind)
    return ParquetFooter(n_rows, chunks, rows)


def _add_row_group(reader: CompactReader, chunks: list[ColumnChunk], rows: dict[str, int]) -> None:
    n_rows, file, n_before = 0, "", len(chunks)
    for field, kind in reader.fields():
        if field == 1:
            for _ in reader.items():
                file = _column_chunk(reader, chunks) or file
        elif field == 3:
            n_rows = reader.integer()
        else:
            reader.skip(kind)
    if not n_rows:  # nobody asks where its columns are
        del chunks[n_before:]
    rows[file] = rows.get(file, 0) + n_rows
    if len(rows) > _MOST_FILES:
        raise ThriftError(f"row groups in more than {_MOST_FILES} files")


def _column_chunk(reader: CompactReader, chunks: list[ColumnChunk]) -> str:
    """Return the other file that a chunk is in; of one in this file, and not encrypted, add it."""
    file, found, is_encrypted = "", [], False
    for field, kind in reader.fields():
        if field == 1:
            file = reader.binary().decode(errors="surrogateescape")
        elif field == 3:
            numbers = reader.integers({7, 9, 11})
            pages, dictionary = numbers.get(9, 0), numbers.get(11, 0)
            begin = min(pages, dictionary) if dictionary > 0 else pages
            found.append(ColumnChunk(begin, numbers.get(7, 0)))
        else:
            is_encrypted = is_encrypted or field in {8, 9}
            reader.skip(kind)
    chunks += [] if file or is_encrypted else found
    return file


def prove(_: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
    """Return which page has another checksum than it states; no file is ever proven as a whole."""
    # The headers of pages, the footer and indices have no checksum.
    footer = footer_of(read, size)
    chunks = footer.chunks if isinstance(footer, ParquetFooter) else ()
    return next(filter(None, (_wrong_page(read, chunk) for chunk in chunks)), False)


def _wrong_page(read: Read, chunk: ColumnChunk) -> Mismatch | None:
    at, end = chunk.begin, chunk.begin + chunk.n_bytes
    while at < end:
        reader = CompactReader(read(min(_MAX_HEADER_BYTES, end - at), at))
        try:
            numbers = reader.integers({3, 4})
        except (ThriftError, IndexError) as error:
            return Mismatch(f"the header of a page at byte {at}", told(error))
        begin, n_bytes = at + reader.at, numbers.get(3, -1)
        if n_bytes < 0 or begin + n_bytes > end:
            return Mismatch(f"a page within bytes {at} to {end}", f"one of {n_bytes} bytes")
        at = begin + n_bytes
        if 4 in numbers and _crc_of(read, begin, at) != (stated := numbers[4] & 0xFFFFFFFF):
            return Mismatch(f"a page with the CRC-32 {stated:08x}", f"another at byte {begin}")
    return None


def _crc_of(read: Read, at: int, end: int) -> int:
    checksum = 0
    while at < end and (piece := read(min(_PIECE_BYTES, end - at), at)):
        checksum = zlib.crc32(piece, checksum)
        at += len(piece)
    return checksum
