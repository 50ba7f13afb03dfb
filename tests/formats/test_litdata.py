"""LitData: chunks as its writer makes them, of each kind that is known."""

import itertools
import json
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardproof import ManifestError, validate
from shardproof.formats.samples import LITDATA as FORMAT
from tests.formats.looking import contract, found_in, put, said_of

CONFIG: dict[str, Any] = {
    "compression": None,
    "compression_level": None,
    "chunk_size": None,
    "encryption": None,
    "chunk_bytes": 64_000_000,
    "data_format": ["int"],
    "data_spec": "[1, {}]",
    "item_loader": "PyTreeLoader",
}
NEW = CONFIG.keys()
OLD = NEW - {"compression_level"}
OLDEST = OLD - {"encryption", "item_loader"}
"""What configs have that writers of before 0.2.74 and of before 0.2.18 left."""


def chunk(samples: list[bytes]) -> bytes:
    offsets = [4 * (len(samples) + 2)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    return struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + b"".join(samples)


def framed(samples: list[bytes], version: int = 1, rows: int = 2) -> bytes:
    ends = [0, *itertools.accumulate(map(len, samples))]
    firsts = range(0, len(samples), rows)
    at = 24 + 4 * len(ends) + 24 * len(firsts)
    table = b""
    for first in firsts:
        last = min(len(samples), first + rows)
        n_bytes = ends[last] - ends[first]
        table += struct.pack("<IIQII", first, last - first, at, n_bytes, n_bytes)
        at += n_bytes
    head = struct.pack("<8sHHIII", b"LDFZ01", version, 0, len(samples), rows, len(firsts))
    return head + struct.pack(f"<{len(ends)}I", *ends) + table + b"".join(samples)


def with_arrow(body: bytes, rows: bytes = b"ipc") -> bytes:
    return body + rows + struct.pack("<I", len(rows)) + b"LDARW01\0"


def write_litdata(
    path: Path,
    chunks: list[tuple[str, bytes, int, int]],
    *,
    keys: Collection[str] = NEW,
    **config: Any,
) -> Path:
    """Write chunks: the name, the bytes, how many samples and bytes the index says they have."""
    path.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, data, n, n_bytes in chunks:
        (path / name).write_bytes(data)
        entries.append({"chunk_bytes": n_bytes, "chunk_size": n, "dim": None, "filename": name})
    config = {key: value for key, value in (CONFIG | config).items() if key in keys}
    index = {"chunks": entries, "config": config, "updated_at": "1.5"}
    (path / "index.json").write_text(json.dumps(index, sort_keys=True))
    return path


def classic(n_chunks: int = 3) -> list[tuple[str, bytes, int, int]]:
    made = [chunk([bytes([n]) * 5, b"", b"abc"]) for n in range(n_chunks)]
    return [(f"chunk-0-{n}.bin", data, 3, len(data)) for n, data in enumerate(made)]


def by_samples(n_chunks: int = 3) -> list[tuple[str, bytes, int, int]]:
    return [(name, data, n, len(data) - 4 * (n + 2)) for name, data, n, _ in classic(n_chunks)]


TestFormat = contract(FORMAT, "index.json", lambda n, at: write_litdata(at, classic(n)), "*.bin")


ZSTD = b"\x28\xb5\x2f\xfd\x20\x06\x31\0\0packed"
"""A frame of one segment and one block, which is stored as it is."""


@pytest.mark.parametrize("harm", [b"\0" + ZSTD[1:], ZSTD[:-1], ZSTD[:5], ZSTD + b"\0", ZSTD[:8]])
def test_a_file_that_is_compressed_as_a_whole(tmp_path, harm: bytes) -> None:
    name = "chunk-0-0.zstd.bin"
    write_litdata(tmp_path, [(name, ZSTD, 3, 999)], compression="zstd")
    assert found_in(tmp_path) == []
    (tmp_path / name).write_bytes(harm)
    assert found_in(tmp_path) == [("structure", name)]


class TestOlderWriters:
    """They state the bytes of the samples, and how new an index is does not always show."""

    @pytest.mark.parametrize("keys", [OLD, OLDEST])
    @pytest.mark.parametrize("chunks", [classic(), by_samples()])
    def test_both_ways_to_count_are_sound(self, tmp_path, keys, chunks) -> None:
        report = validate(write_litdata(tmp_path, chunks, keys=keys), level="complete")
        assert (report.findings, report.n_files) == ((), 3)

    def test_both_in_an_index_that_was_merged(self, tmp_path) -> None:
        write_litdata(tmp_path, [*classic(2), *by_samples()[2:]])
        assert len(found_in(tmp_path)) == 1
        text = (tmp_path / "index.json").read_text()
        (tmp_path / "index.json").write_text(text.replace("updated_at", "other"))
        assert found_in(tmp_path) == []

    @pytest.mark.parametrize("chunks", [classic(1), by_samples(1)])
    @pytest.mark.parametrize("size", [7, 19, 27, 29, 400])
    def test_another_size_shows(self, tmp_path, chunks, size: int) -> None:
        write_litdata(tmp_path, chunks, keys=OLD)
        [(name, data, *_)] = chunks
        (tmp_path / name).write_bytes(data.ljust(size, b"x")[:size])
        assert found_in(tmp_path) == [("structure", name)]

    @pytest.mark.parametrize(
        "config", [{"encryption": {"level": "chunk"}}, {"item_loader": "ParquetLoader"}]
    )
    def test_where_they_state_the_size_it_is_promised(self, tmp_path, config) -> None:
        write_litdata(tmp_path, classic(), keys=OLD, **config)
        assert [file.size for file in FORMAT.read_manifest(str(tmp_path)).files] == [28] * 3

    def test_a_sound_chunk_in_the_place_of_another_shows(self, tmp_path) -> None:
        write_litdata(tmp_path, by_samples(1), keys=OLD)
        (tmp_path / "chunk-0-0.bin").write_bytes(chunk([b"abcde", b"", b"ab"]))
        assert said_of(tmp_path) == [("8 bytes, or 20 more", "27 bytes")]


@pytest.mark.parametrize("compression", ["zstd", "zstd:3"])
def test_a_chunk_that_its_reader_unpacked_beside_it_or_in_its_place(tmp_path, compression) -> None:
    """In its place LitData does since 0.2.70."""
    packed, plain = tmp_path / f"chunk-0-0.{compression}.bin", tmp_path / "chunk-0-0.bin"
    [(_, data, n, n_bytes)] = classic(1)
    write_litdata(tmp_path, [(packed.name, ZSTD, n, n_bytes)], compression=compression)
    plain.write_bytes(data)
    report = validate(tmp_path, level="complete")
    assert (report.findings, report.n_files) == ((), 2)
    packed.write_bytes(b"\0\0\0\0packed")
    assert said_of(tmp_path) == [("the beginning of zstd", r"b'\x00\x00\x00\x00packed'")]
    packed.unlink()
    assert found_in(tmp_path) == []
    plain.write_bytes(data[:-1])
    assert found_in(tmp_path) == [("size", plain.name)]


@pytest.mark.parametrize("level", ["batch", "sample"])
def test_chunks_that_are_compressed_inside(tmp_path, level: str) -> None:
    data = framed([b"abc", b"", b"12345"]) if level == "batch" else classic(1)[0][1]
    chunks = [("chunk-0-0.bin", data, 3, len(data))]
    write_litdata(tmp_path, chunks, compression="zstd", compression_level=level)
    assert found_in(tmp_path) == []
    (tmp_path / "chunk-0-0.bin").write_bytes(data[:-1])
    assert found_in(tmp_path) == [("size", "chunk-0-0.bin")]


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda data: put(data, 12, 4), ("3 samples", "4 samples")),
        (lambda data: put(data, 20, 1), ("frames up to byte 96", "up to byte 91")),
        (lambda data: put(data, 80, 99), ("frames up to byte 96", "up to byte 190")),
        (lambda data: put(data, 20, 2**31), ("frames up to byte 96", "up to byte 0")),
        (lambda data: data[:20], ("24 bytes", "20 bytes")),
        (lambda data: data[:95], ("frames up to byte 95", "up to byte 96")),
    ],
)
def test_harm_to_frames(tmp_path, harm, said: tuple[str, str]) -> None:
    data = framed([b"abc", b"", b"12345"])
    chunks = [("chunk-0-0.bin", harm(data), 3, len(data))]
    write_litdata(tmp_path, chunks, keys=OLD, compression="zstd")
    assert said_of(tmp_path) == [said]


def test_frames_of_a_later_version_are_not_judged(tmp_path) -> None:
    data = put(framed([b"abc"], version=2), 12, 7)
    write_litdata(tmp_path, [("chunk-0-0.bin", data, 1, len(data))], compression_level="batch")
    assert found_in(tmp_path) == []


@pytest.mark.parametrize("body", [chunk([b"a", b"b"]), struct.pack("<4I", 2, 16, 16, 16)])
def test_rows_of_arrow_at_the_end(tmp_path, body: bytes) -> None:
    data = with_arrow(body)
    write_litdata(tmp_path, [("chunk-0-0.bin", data, 2, len(data))])
    assert found_in(tmp_path) == []
    for other in (data[:-1] + b"1", put(data, len(data) - 12, 4), put(data, len(data) - 12, 0)):
        (tmp_path / "chunk-0-0.bin").write_bytes(other)
        expected, found = f"samples from byte 16 to {len(data)}", f"from byte 16 to {len(body)}"
        assert said_of(tmp_path) == [(expected, found)]


@pytest.mark.parametrize(("level", "kinds"), [("chunk", []), ("sample", ["structure"])])
def test_an_encrypted_chunk_tells_nothing_but_its_size(tmp_path, level: str, kinds) -> None:
    chunks = [("chunk-0-0.bin", b"x" * 100, 2, 100)]
    write_litdata(tmp_path, chunks, encryption={"level": level, "algorithm": "fernet"})
    assert [kind for kind, _ in found_in(tmp_path)] == kinds


def test_an_index_of_parquet_files(tmp_path) -> None:
    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "0.parquet")
    data = (tmp_path / "0.parquet").read_bytes()
    entry = ("0.parquet", data, 3, len(data))
    write_litdata(tmp_path, [entry], item_loader="ParquetLoader")
    assert found_in(tmp_path) == []
    write_litdata(tmp_path, [("0.parquet", data, 4, len(data))], item_loader="ParquetLoader")
    assert found_in(tmp_path) == [("structure", "0.parquet")]


def test_a_kind_that_is_newer_is_refused_by_its_name(tmp_path) -> None:
    write_litdata(tmp_path, [("chunk-0-0.lz4.bin", b"packed", 3, 999)], compression="lz4")
    assert found_in(tmp_path) == []  # of another compression nothing is said
    write_litdata(tmp_path, classic(), compression="zstd", compression_level="quantum")
    with pytest.raises(ManifestError, match="'quantum' are not known here"):
        validate(tmp_path)


def test_a_chunk_that_is_longer_than_any_rows_of_arrow(tmp_path) -> None:
    write_litdata(tmp_path, classic(1), keys=OLD)
    with (tmp_path / "chunk-0-0.bin").open("r+b") as file:
        file.truncate(2**32 + 100)
    expected, found = f"samples from byte 20 to {2**32 + 100}", "from byte 20 to 28"
    assert said_of(tmp_path) == [(expected, found)]


HARM: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "fewer samples": (lambda data: put(data, 0, 2), "3 samples", "2 samples"),
    "zeros": (lambda data: bytes(len(data)), "3 samples", "0 samples"),
    "samples that begin among the offsets": (
        lambda data: put(data, 4, 8),
        "samples from byte 20 to 28",
        "from byte 8 to 28",
    ),
    "an end beyond the file": (
        lambda data: put(data, 16, 2**31),
        "samples from byte 20 to 28",
        "from byte 20 to 2147483648",
    ),
}


@pytest.mark.parametrize("keys", [NEW, OLD])
@pytest.mark.parametrize("harm", HARM)
def test_harm_that_keeps_the_size(tmp_path, harm: str, keys) -> None:
    write_litdata(tmp_path, classic(), keys=keys)
    path, (change, *said) = tmp_path / "chunk-0-1.bin", HARM[harm]
    path.write_bytes(change(path.read_bytes()))
    assert found_in(tmp_path) == [("structure", path.name)]
    assert said_of(tmp_path) == [tuple(said)]


@pytest.mark.parametrize(
    "text", ["{}", "x", '{"shards": []}', '{"chunks": ["a"]}', '{"config": {}}']
)
def test_another_index_is_not_claimed(tmp_path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    assert not FORMAT.recognizes(str(tmp_path))
