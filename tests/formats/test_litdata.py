"""LitData: chunks as its writer makes them, of each kind that is known."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardproof import FindingKind, ManifestError, validate
from shardproof.formats.samples.litdata import FORMAT
from shardproof.testing import Layout
from shardproof.testing.contracts import FormatContract

CONFIG: dict[str, Any] = {
    "compression": None,
    "chunk_size": None,
    "chunk_bytes": 64_000_000,
    "data_format": ["int"],
    "data_spec": "[1, {}]",
    "encryption": None,
    "item_loader": "PyTreeLoader",
}


def chunk(samples: list[bytes]) -> bytes:
    offsets = [4 * (len(samples) + 2)]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    return struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + b"".join(samples)


def write_litdata(path: Path, chunks: list[tuple[str, bytes, int, int]], **config: Any) -> Path:
    """Write chunks: the name, the bytes, how many samples and bytes the index says they have."""
    path.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, data, n_samples, n_bytes in chunks:
        (path / name).write_bytes(data)
        entries.append(
            {"chunk_bytes": n_bytes, "chunk_size": n_samples, "dim": None, "filename": name}
        )
    index = {"chunks": entries, "config": CONFIG | config, "updated_at": "1.5"}
    (path / "index.json").write_text(json.dumps(index, sort_keys=True))
    return path


def classic(n_chunks: int = 3) -> list[tuple[str, bytes, int, int]]:
    made = [chunk([bytes([n]) * 5, b"", b"abc"]) for n in range(n_chunks)]
    return [(f"chunk-0-{n}.bin", data, 3, len(data)) for n, data in enumerate(made)]


def found_in(path: Path, level: str = "complete") -> list[tuple[str, str]]:
    return [(each.kind.value, each.path.name) for each in validate(path, level=level).findings]


class TestFormat(FormatContract):
    manifest_name = "index.json"

    @pytest.fixture
    def form(self):
        return FORMAT

    def write_dir(self, value: Layout, base: Path) -> Path:
        return write_litdata(base, classic(value.n_shards))

    def shard_files(self, path: Path) -> list[Path]:
        return sorted(path.glob("*.bin"))


def test_a_whole_directory(tmp_path) -> None:
    report = validate(write_litdata(tmp_path, classic()), level="complete")
    assert (report.format, report.ok, report.n_files) == ("litdata", True, 3)


@pytest.mark.parametrize("loader", ["TokensLoader", "TemporalArrayLoader", "MyOwnLoader", None])
def test_chunks_of_each_loader_are_written_alike(tmp_path, loader) -> None:
    assert found_in(write_litdata(tmp_path, classic(), item_loader=loader)) == []


def test_a_file_that_is_compressed_as_a_whole(tmp_path) -> None:
    name, data = "chunk-0-0.zstd.bin", b"\x28\xb5\x2f\xfdpacked"
    write_litdata(tmp_path, [(name, data, 3, 999)], compression="zstd")
    assert found_in(tmp_path) == []
    (tmp_path / name).write_bytes(b"\0" + data[1:])
    assert found_in(tmp_path) == [("structure", name)]


@pytest.mark.parametrize("level", ["batch", "sample"])
def test_chunks_that_are_compressed_inside(tmp_path, level: str) -> None:
    data = b"LDFZ01\0\0" + bytes(40) if level == "batch" else classic(1)[0][1]
    chunks = [("chunk-0-0.bin", data, 3, len(data))]
    write_litdata(tmp_path, chunks, compression="zstd", compression_level=level)
    assert found_in(tmp_path) == []
    (tmp_path / "chunk-0-0.bin").write_bytes(data[:-1])
    assert found_in(tmp_path) == [("size", "chunk-0-0.bin")]


@pytest.mark.parametrize("with_body", [True, False])
def test_rows_of_arrow_at_the_end(tmp_path, with_body: bool) -> None:
    body = chunk([b"a", b"b"]) if with_body else struct.pack("<4I", 2, 16, 16, 16)
    data = body + b"ipc" + struct.pack("<I", 3) + b"LDARW01\0"
    write_litdata(tmp_path, [("chunk-0-0.bin", data, 2, len(data))])
    assert found_in(tmp_path) == []
    write_litdata(tmp_path, [("chunk-0-0.bin", data[:-1] + b"1", 2, len(data))])
    assert found_in(tmp_path) == [("structure", "chunk-0-0.bin")]


@pytest.mark.parametrize(("level", "kinds"), [("chunk", []), ("sample", ["structure"])])
def test_an_encrypted_chunk_tells_nothing_but_its_size(tmp_path, level: str, kinds) -> None:
    chunks = [("chunk-0-0.bin", b"x" * 100, 2, 100)]
    write_litdata(tmp_path, chunks, encryption={"level": level, "algorithm": "fernet"})
    assert [kind for kind, _ in found_in(tmp_path)] == kinds


def test_an_index_of_parquet_files(tmp_path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1, 2, 3]}), tmp_path / "0.parquet")
    data = (tmp_path / "0.parquet").read_bytes()
    entry = ("0.parquet", data, 3, len(data))
    write_litdata(tmp_path, [entry], item_loader="ParquetLoader")
    assert found_in(tmp_path) == []
    write_litdata(tmp_path, [("0.parquet", data, 4, len(data))], item_loader="ParquetLoader")
    assert found_in(tmp_path) == [("structure", "0.parquet")]


def test_a_kind_that_is_newer_is_refused_by_its_name(tmp_path) -> None:
    write_litdata(tmp_path, classic(), compression="zstd", compression_level="quantum")
    with pytest.raises(ManifestError, match="'quantum' are not known here"):
        validate(tmp_path)


def put(data: bytes, at: int, number: int) -> bytes:
    return data[:at] + number.to_bytes(4, "little") + data[at + 4 :]


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: put(data, 0, 2),
        lambda data: put(data, 4, 8),
        lambda data: put(data, 16, 2**31),
        lambda data: bytes(len(data)),
    ],
)
def test_harm_that_keeps_the_size(tmp_path, harm) -> None:
    write_litdata(tmp_path, classic())
    path = tmp_path / "chunk-0-1.bin"
    path.write_bytes(harm(path.read_bytes()))
    assert found_in(tmp_path) == [("structure", path.name)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=40), min_size=1, max_size=3))
def test_sound_ones_have_no_findings(tmp_path_factory, contents: list[list[bytes]]) -> None:
    made = [(samples, chunk(samples)) for samples in contents]
    chunks = [(f"chunk-0-{n}.bin", d, len(s), len(d)) for n, (s, d) in enumerate(made)]
    path = write_litdata(tmp_path_factory.mktemp("x"), chunks)
    assert found_in(path) == []


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_of_a_chunk_have_an_answer(tmp_path_factory, data) -> None:
    path = write_litdata(tmp_path_factory.mktemp("x"), classic(1))
    size = (path / "chunk-0-0.bin").stat().st_size
    (path / "chunk-0-0.bin").write_bytes(data.draw(st.binary(min_size=size, max_size=size)))
    kinds = {each.kind for each in validate(path, level="complete").findings}
    assert kinds <= {FindingKind.STRUCTURE, FindingKind.IMPOSTOR}
