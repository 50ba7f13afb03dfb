"""Parquet files: their ends read from afar, their rows from any row on, and damage to either."""

import contextlib
import io
import os
import struct
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof.datasets.rows import _lines, _parquet
from shardproof.datasets.rows._lines import TextShard, line_count
from shardproof.datasets.rows._parquet import ParquetShard, row_count
from shardproof.errors import ShardReadError
from shardproof.fetching.sources._open import open_source
from shardproof.fetching.sources._source import RemoteFile
from shardproof.fetching.transfer._attempts import Limits
from shardproof.testing.faults import Hub
from tests.helpers.drawing import examples

LIMITS = Limits(attempts=1, stall_timeout=5)


def table(n_rows: int) -> pa.Table:
    """Nested columns, nulls, and each row other than the others."""
    numbers = range(n_rows)
    texts = [None if n % 5 == 3 else f"text {n}" for n in numbers]
    tags = [None if n % 4 == 1 else [{"a": n, "b": None}] * (n % 3) for n in numbers]
    tag = pa.struct([("a", pa.int64()), ("b", pa.string())])
    kinds = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(tag))])
    return pa.table([list(numbers), texts, tags], kinds)


def parquet(n_rows: int, group: int = 3, **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table(n_rows), buffer, row_group_size=group, **options)
    return buffer.getvalue()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shard.parquet"


def rows_of(path: Path, start: int = 0, columns: Sequence[str] | None = None) -> list[Any]:
    with contextlib.closing(ParquetShard(path, columns)) as shard:
        return [row for rows in shard.rows(start) for row in rows]


@pytest.mark.slow
@examples(40)
@given(n_rows=st.integers(0, 20), group=st.integers(1, 9), size=st.integers(1, 6) | st.none())
def test_rows_from_any_row_on_are_what_pyarrow_reads_from_there(
    n_rows: int, group: int, size: int | None
) -> None:
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        file.write(parquet(n_rows, group))
        file.flush()
        expected = pq.read_table(file.name)
        for start in range(n_rows + 2):
            shard = ParquetShard(file.name)
            assert [row for rows in shard.rows(start) for row in rows] == expected[
                start:
            ].to_pylist()
            batches = list(shard.batches(start, size))
            assert pa.Table.from_batches(batches, expected.schema) == expected[start:]
            assert shard.table(start) == expected[start:]
            assert all(0 < batch.num_rows <= (size or n_rows) for batch in batches)
            assert shard.n_rows == n_rows
            shard.close()


def test_row_groups_before_the_first_row_are_not_read(path: Path) -> None:
    data = bytearray(parquet(9, 3, compression="none"))
    metadata = pq.read_metadata(io.BytesIO(data))
    for group in range(2):
        for n in range(metadata.num_columns):
            column = metadata.row_group(group).column(n)
            start = column.dictionary_page_offset or column.data_page_offset
            data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(bytes(data))
    assert rows_of(path, 6) == table(9)[6:].to_pylist()
    with pytest.raises(ShardReadError):
        rows_of(path, 5)


def test_columns_that_are_not_wanted_are_not_read(path: Path) -> None:
    path.write_bytes(parquet(5))
    assert rows_of(path, 1, ["text"]) == [{"text": row["text"]} for row in table(5)[1:].to_pylist()]
    shard = ParquetShard(path, ["tags", "id"])
    assert shard.table(2) == table(5).select(["tags", "id"])[2:]
    shard.close()
    with pytest.raises(ValueError, match="has no 'x', 'y', but 'id', 'text', 'tags'") as caught:
        ParquetShard(path, ["x", "id", "y"])
    assert str(path) in str(caught.value)


def test_large_rows_come_a_few_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    large = pa.table({"x": [bytes([n]) * 2**20 for n in range(24)]})
    pq.write_table(large, path, use_dictionary=False, compression="none", write_batch_size=1)
    shard = ParquetShard(path)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    for batch in shard.batches(0):
        assert batch.num_rows <= 4
        assert pa.total_allocated_bytes() - before < 16 * 2**20
    tracemalloc.stop()
    shard.close()


def test_a_file_that_is_cut_off_anywhere(path: Path) -> None:
    data = parquet(6)
    for size in [*range(14), *range(14, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(ShardReadError) as caught:
            ParquetShard(path)
        text = str(caught.value)
        assert text.startswith(f"Could not read '{path}': expected ")
        assert "found " in text
        assert "remove a damaged copy" in text


def footer_with(data: bytes, old: int, new: int, *, last: bool = False) -> bytes:
    """The file with one number of its metadata changed: zigzag varints, as Thrift writes them."""
    (n_bytes,) = struct.unpack("<I", data[-8:-4])
    body, footer = data[: -8 - n_bytes], data[-8 - n_bytes : -8]
    before, found, after = (footer.rpartition if last else footer.partition)(varint(2 * old))
    assert found
    footer = before + varint(2 * new) + after
    return body + footer + struct.pack("<I", len(footer)) + b"PAR1"


def varint(number: int) -> bytes:
    digits = []
    while number >= 128:
        digits.append(number % 128 + 128)
        number //= 128
    return bytes([*digits, number])


def lies(**options: Any) -> dict[str, tuple[bytes, str]]:
    """Files with a wrong end, each with what is said of it."""
    plain = pa.table({"x": pa.array(range(3000), pa.int64())})
    buffer = io.BytesIO()
    pq.write_table(plain, buffer, row_group_size=2000, compression="none", use_dictionary=False)
    data = buffer.getvalue()
    column = pq.read_metadata(io.BytesIO(data)).row_group(1).column(0)
    offset = column.data_page_offset
    return {
        "fewer rows": (footer_with(data, 3000, 2999), "expected 2999 rows, as its metadata say"),
        "more rows": (footer_with(data, 3000, 10**15), f"expected {10**15} rows"),
        "length": (
            data[:-8] + struct.pack("<I", 2**31) + b"PAR1",
            f"{2**31}",  # as ours or pyarrow says
        ),
        "no length": (data[:-8] + bytes(4) + b"PAR1", "thrift"),
        "short": (data[:-8] + struct.pack("<I", 20) + b"PAR1", "thrift"),
        "encrypted": (data[:-4] + b"PARE", "encrypted"),
        "no magic": (data[:-4] + b"par1", "magic bytes not found"),
        "offset": (footer_with(data, offset, offset + 10**6), "corrupt file"),
        "zeros": (data[:100] + bytes(1000) + data[1100:], ""),
    }


@pytest.mark.parametrize("lie", lies())
def test_an_end_that_lies(lie: str, path: Path) -> None:
    data, said = lies()[lie]
    path.write_bytes(data)
    if lie == "zeros":  # no checksums, so that this is not seen: the digest of the fetch sees it
        assert len(rows_of(path)) == 3000
        return
    with pytest.raises(ShardReadError) as caught:
        rows_of(path)
    assert str(caught.value).startswith(f"Could not read '{path}': ")
    assert said in str(caught.value)
    assert caught.value.path == str(path)


def test_a_row_group_with_other_rows_than_it_says(path: Path) -> None:
    data = lies()["fewer rows"][0]
    path.write_bytes(footer_with(data, 1000, 999, last=True))
    with pytest.raises(ShardReadError, match="column 'x': expected 999 rows, found 1000"):
        rows_of(path)


def test_checksums_of_pages_are_compared_where_there_are_some(path: Path) -> None:
    data = bytearray(parquet(6, compression="none", write_page_checksum=True))
    data[data.index(b"text 4") + 5] ^= 1
    path.write_bytes(data)
    with pytest.raises(ShardReadError, match="CRC") as caught:
        rows_of(path)
    assert caught.value.__cause__ is not None


def test_a_file_that_is_gone_or_is_none(tmp_path: Path) -> None:
    with pytest.raises(ShardReadError, match="No such file") as caught:
        ParquetShard(tmp_path / "x.parquet")
    assert caught.value.path == str(tmp_path / "x.parquet")
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(ShardReadError, match=str(tmp_path)):
        ParquetShard(tmp_path)


def test_a_file_that_shrinks_while_it_is_read(path: Path) -> None:
    path.write_bytes(parquet(3000, 1000))
    shard = ParquetShard(path)
    rows = shard.rows(0)
    next(rows)
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ShardReadError, match=r"shard\.parquet"):
        list(rows)
    shard.close()


def test_without_pyarrow_the_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'shardproof\[hf\]'"):
        ParquetShard("x")


def count(hub: Hub, data: bytes, size: int | None = None) -> int:
    hub.put("s/x.parquet", data)
    source = open_source(f"{hub.url}/s")
    try:
        file = RemoteFile("x.parquet", len(data) if size is None else size)
        return row_count(source, file, LIMITS)
    finally:
        source.close()


def test_the_number_of_rows_takes_one_short_read(shard_hub: Hub) -> None:
    data = parquet(20_000, 5000, compression="none", use_dictionary=False)
    assert len(data) > 8 * 2**16
    assert count(shard_hub, data) == 20_000
    (request,) = shard_hub.requests_for("s/*", method="GET")
    assert request.bytes_sent == 2**16


def test_a_long_end_takes_two(shard_hub: Hub) -> None:
    data = parquet(900, 1)
    (n_bytes,) = struct.unpack("<I", data[-8:-4])
    assert n_bytes > 2**16
    assert count(shard_hub, data) == 900
    requests = shard_hub.requests_for("s/*", method="GET")
    assert [request.bytes_sent for request in requests] == [2**16, n_bytes + 8 - 2**16]


@pytest.mark.parametrize("lie", ["fewer rows", "length", "short", "encrypted"])
def test_the_end_of_a_file_elsewhere_that_lies(lie: str, shard_hub: Hub) -> None:
    data, said = lies()[lie]
    with pytest.raises(ShardReadError) as caught:
        count(shard_hub, data)
    assert caught.value.path == f"{shard_hub.url}/s/x.parquet"
    assert said in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"x", b"PAR1PAR1", b"\0" * 12, b"PAR1\0\0\0\0PAR1"])
def test_the_end_of_what_is_no_parquet_file(data: bytes, shard_hub: Hub) -> None:
    with pytest.raises(ShardReadError, match="parquet file whose end can be read, found none"):
        count(shard_hub, data)


def test_an_end_that_would_be_huge_is_not_asked_for(
    shard_hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_parquet, "_MAX_READ_BYTES", 2**17)
    data = bytes(2**18) + struct.pack("<I", 2**17 + 1) + b"PAR1"
    with pytest.raises(ShardReadError, match="an end of at most 131072 bytes, found 131073"):
        count(shard_hub, data)
    assert sum(request.bytes_sent for request in shard_hub.requests) == 2**16


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", []), (b"\n\na\r\n\n", ["", "", "a", ""]), (b"a\rb\n\xe2\x82\xac", ["a\rb", "€"])],
)
def test_lines(data: bytes, expected: list[str], tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    assert line_count(path) == len(expected)
    for start in range(len(expected) + 1):
        shard = TextShard(path, "line")
        rows = [row for rows in shard.rows(start) for row in rows]
        assert rows == [{"line": line} for line in expected[start:]]
        assert shard.table(start).to_pylist() == rows
        assert [b.num_rows for b in shard.batches(start, 1)] == [1] * len(rows)
        shard.close()
    shard = TextShard(path, "line")
    with pytest.raises(ShardReadError, match=f"{len(expected) + 1} rows or more, found"):
        list(shard.rows(len(expected) + 1))
    shard.close()


def test_lines_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\nb\xff\n" + b"c" * 100)
    shard = TextShard(path, "x")
    with pytest.raises(ShardReadError, match=rf"{path}.*line 2: expected UTF-8, found b'\\xff'"):
        list(shard.rows(0))
    monkeypatch.setattr(_lines, "MAX_LINE_BYTES", 99)
    with pytest.raises(ShardReadError, match="line 3: expected at most 99 bytes"):
        list(shard.rows(2))
    shard.close()


def test_text_files_that_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, said in [("fifo", "a FIFO"), (".", "a directory"), ("x", "No such file")]:
        with pytest.raises(ShardReadError, match=said):
            TextShard(tmp_path / name, "x")
