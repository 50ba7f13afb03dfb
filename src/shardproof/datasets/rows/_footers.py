"""The end of a parquet file, which says how many rows it has: read alone, and not believed.

A parquet file ends with its metadata, their length in four bytes, and ``PAR1``
(https://parquet.apache.org/docs/file-format/). So two short reads tell how many rows a file has
that stays where it is.
"""

import struct
from typing import TYPE_CHECKING

from shardproof._base.deadline import Deadline
from shardproof._base.messages import quoted, traced
from shardproof._base.threads import Stop
from shardproof.errors import ShardReadError
from shardproof.fetching.sources import RemoteFile, Source
from shardproof.fetching.transfer import Goal, Limits, ask, read_range

if TYPE_CHECKING:
    import pyarrow.parquet

__all__ = [
    "END_BYTES",
    "MAX_FOOTER_BYTES",
    "check_rows",
    "footer_bytes",
    "need_pyarrow",
    "row_count",
]

MAX_FOOTER_BYTES = 64 * 2**20
"""Longest metadata that is read: a hundred times those of a file with 1000 row groups."""

END_BYTES = 8

_TAIL_BYTES = 2**16
_MAGIC = b"PAR1"
_LEAST_BYTES = 12


def row_count(source: Source, file: RemoteFile, limits: Limits) -> int:
    """Return how many rows a parquet file has, of which nothing but the end is read.

    Args:
        source: Where it is.
        file: What the source's listing says of it.
        limits: How long and how often to try.

    Raises:
        ShardReadError: Its end is not that of a parquet file, or contradicts itself.
        FetchError: The source doesn't give it.
    """
    where = f"{source.url.rstrip('/')}/{file.name}"
    if file.size is None:
        goal = Goal(quoted(file.name), where, "memory")
        deadline = Deadline(limits.deadline, Stop())
        file = ask(source, file.name, goal=goal, limits=limits, deadline=deadline)
    if file.size is None:
        raise ShardReadError("its size is not known, so neither is its end", path=where)
    if file.size < _LEAST_BYTES:
        footer_bytes(b"", file.size, where)
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
    """Return how long the metadata of a parquet file are.

    Args:
        end: The last 8 bytes of it.
        size: How long it is.
        where: What an error calls it.

    Raises:
        ShardReadError: It is no parquet file, or cut off.
    """
    if size < _LEAST_BYTES:
        problem = f"expected a parquet file, {_LEAST_BYTES} bytes or more, found {size}"
        raise ShardReadError(f"{problem}. {_TO_DO}", path=where)
    n_bytes, magic = struct.unpack("<I4s", end)
    if magic == b"PARE":
        raise ShardReadError("it is encrypted, and can't be read here", path=where)
    if magic != _MAGIC:
        problem = (
            f"expected it to end with {quoted(_MAGIC)}, as parquet files do, found {quoted(magic)}"
        )
        raise ShardReadError(f"{problem}: cut off, or another format. {_TO_DO}", path=where)
    most = min(size - _LEAST_BYTES, MAX_FOOTER_BYTES)
    if not 0 < n_bytes <= most:
        problem = f"expected metadata of 1 to {most} bytes at its end, found {n_bytes} announced"
        raise ShardReadError(f"{problem}. {_TO_DO}", path=where)
    return int(n_bytes)


def _rows_in(footer: bytes, where: str) -> int:
    need_pyarrow()
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
    except Exception as error:
        # pyarrow has no class of its own for this: it is OSError, ValueError, or its own.
        problem = f"its metadata can't be read: {quoted(str(error), 200)}"
        raise ShardReadError(f"{problem}. {_TO_DO}", path=where) from traced(error)
    check_rows(metadata, where)
    return int(metadata.num_rows)


def check_rows(metadata: "pyarrow.parquet.FileMetaData", where: str) -> None:
    """Raise where the number of rows is not what the row groups come to.

    Raises:
        ShardReadError: It is not.
    """
    counts = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
    if metadata.num_rows != sum(counts) or min(counts, default=0) < 0:
        problem = (
            f"expected {metadata.num_rows} rows, as its metadata say, found {sum(counts)} in "
            f"{len(counts)} row groups"
        )
        raise ShardReadError(f"{problem}. {_TO_DO}", path=where)


def need_pyarrow() -> None:
    """Raise if pyarrow is not installed.

    Raises:
        ImportError: It is not; the text has the command.
    """
    try:
        import pyarrow.parquet  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        problem = "parquet files are read by pyarrow: pip install 'shardproof[hf]'"
        raise ImportError(problem) from error


_TO_DO = "Compare it with the original; remove a damaged copy, and it is fetched again"
