"""MosaicML Streaming: what the index states of each shard, and what the shards say themselves."""

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardproof import FindingKind, ManifestError, formats, validate
from shardproof.formats.samples.mds import FORMAT
from shardproof.testing import Layout
from shardproof.testing.contracts import FormatContract

CONFIG = b'{"column_encodings":["int"],"column_names":["x"],"column_sizes":[8],"format":"mds"}'


def shard(samples: list[bytes]) -> bytes:
    begin = 4 * (len(samples) + 2) + len(CONFIG)
    offsets = [begin]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    head = struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets)
    return head + CONFIG + b"".join(samples)


def about(name: str, data: bytes, hashes: tuple[str, ...]) -> dict[str, Any]:
    digests = {each: hashlib.new(each, data).hexdigest() for each in hashes}
    return {"basename": name, "bytes": len(data), "hashes": digests}


def write_mds(path: Path, n_shards: int = 3, hashes: tuple[str, ...] = (), **changes) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    entries = []
    for number in range(n_shards):
        name, data = f"shard.{number:05}.mds", shard([bytes([number]) * n for n in (8, 0, 16)])
        (path / name).write_bytes(data)
        entry = {
            "column_names": ["x"],
            "compression": None,
            "format": "mds",
            "hashes": list(hashes),
            "raw_data": about(name, data, hashes),
            "samples": 3,
            "size_limit": 67108864,
            "version": 2,
            "zip_data": None,
        }
        entries.append(entry | changes)
    (path / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    return path


def found_in(path: Path, level: str = "complete") -> list[tuple[str, str]]:
    return [(each.kind.value, each.path.name) for each in validate(path, level=level).findings]


class TestFormat(FormatContract):
    manifest_name = "index.json"

    @pytest.fixture
    def form(self):
        return FORMAT

    def write_dir(self, value: Layout, base: Path) -> Path:
        return write_mds(base, value.n_shards)

    def shard_files(self, path: Path) -> list[Path]:
        return sorted(path.glob("*.mds"))


def test_a_whole_directory(tmp_path) -> None:
    report = validate(write_mds(tmp_path), level="complete")
    assert (report.format, report.ok, report.n_files) == ("mds", True, 3)
    assert len(validate(tmp_path, level="valid").unproven) == 3


@pytest.mark.parametrize("hashes", [("sha1",), ("md5", "sha256"), ("sha256", "blake2b")])
def test_the_strongest_digest_is_proven(tmp_path, hashes) -> None:
    write_mds(tmp_path, hashes=hashes)
    assert validate(tmp_path, level="valid").n_proven == 3
    path = tmp_path / "shard.00001.mds"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert found_in(tmp_path) == []
    assert found_in(tmp_path, "valid") == [("digest", path.name)]


@pytest.mark.parametrize("theirs", ["xxh3_128", "xxh128", "xxh64", "xxh3_64", "xxh32"])
def test_the_digests_of_xxhash(tmp_path, theirs: str) -> None:
    import xxhash

    write_mds(tmp_path, 1)
    index = json.loads((tmp_path / "index.json").read_text())
    data = (tmp_path / "shard.00000.mds").read_bytes()
    index["shards"][0]["raw_data"]["hashes"] = {theirs: getattr(xxhash, theirs)(data).hexdigest()}
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert validate(tmp_path, level="valid").n_proven == 1


def test_one_that_nobody_knows_proves_nothing(tmp_path) -> None:
    write_mds(tmp_path, 1)
    index = json.loads((tmp_path / "index.json").read_text())
    index["shards"][0]["raw_data"]["hashes"] = {"sha3_999": "00"}
    (tmp_path / "index.json").write_text(json.dumps(index))
    report = validate(tmp_path, level="valid")
    assert (report.ok, len(report.unproven)) == (True, 1)


class TestCompressed:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        write_mds(tmp_path, 1)
        index = json.loads((tmp_path / "index.json").read_text())
        zipped = about("shard.00000.mds.zstd", b"zipped", ("sha1",))
        index["shards"][0] |= {"compression": "zstd:3", "zip_data": zipped}
        (tmp_path / "index.json").write_text(json.dumps(index))
        return tmp_path

    def test_only_as_it_is(self, path) -> None:
        assert found_in(path) == []

    def test_only_compressed(self, path) -> None:
        (path / "shard.00000.mds").unlink()
        (path / "shard.00000.mds.zstd").write_bytes(b"zipped")
        assert validate(path, level="valid").n_proven == 1
        (path / "shard.00000.mds.zstd").write_bytes(b"zippe")
        assert found_in(path) == [("size", "shard.00000.mds.zstd")]

    def test_both(self, path) -> None:
        (path / "shard.00000.mds.zstd").write_bytes(b"zipped")
        assert validate(path, level="complete").n_files == 2

    def test_neither(self, path) -> None:
        (path / "shard.00000.mds").unlink()
        assert found_in(path, "present") == [("missing", "shard.00000.mds.zstd")]


def test_json_lines_have_two_files(tmp_path) -> None:
    index = {
        "version": 2,
        "shards": [
            {
                "format": "json",
                "samples": 2,
                "compression": None,
                "zip_data": None,
                "zip_meta": None,
                "raw_data": about("shard.00000.json", b"{}\n{}\n", ()),
                "raw_meta": about("shard.00000.json.meta", b"meta", ()),
            }
        ],
    }
    (tmp_path / "index.json").write_text(json.dumps(index))
    (tmp_path / "shard.00000.json").write_bytes(b"{}\n{}\n")
    assert found_in(tmp_path) == [("missing", "shard.00000.json.meta")]


def test_shards_in_folders(tmp_path) -> None:
    write_mds(tmp_path, 1)
    (tmp_path / "sub").mkdir()
    (tmp_path / "shard.00000.mds").rename(tmp_path / "sub/shard.00000.mds")
    index = (tmp_path / "index.json").read_text()
    (tmp_path / "index.json").write_text(index.replace('"shard.', '"sub/shard.'))
    assert found_in(tmp_path) == []


def put(data: bytes, at: int, number: int) -> bytes:
    return data[:at] + number.to_bytes(4, "little") + data[at + 4 :]


HARM = {
    "fewer samples": lambda data: put(data, 0, 2),
    "a first sample among the offsets": lambda data: put(data, 4, 8),
    "a first sample beyond the end": lambda data: put(data, 4, 2**31),
    "an offset that goes back": lambda data: put(data, 8, 0),
    "an end beyond the file": lambda data: put(data, 16, 2**31),
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"x" * len(data),
}


@pytest.mark.parametrize("harm", HARM)
def test_harm_that_keeps_the_size(tmp_path, harm: str) -> None:
    write_mds(tmp_path)
    path = tmp_path / "shard.00001.mds"
    path.write_bytes(HARM[harm](path.read_bytes()))
    assert found_in(tmp_path) == [("structure", path.name)]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=30), max_size=40), min_size=1, max_size=3))
def test_sound_ones_have_no_findings(tmp_path_factory, contents: list[list[bytes]]) -> None:
    path = tmp_path_factory.mktemp("x")
    entries = []
    for number, samples in enumerate(contents):
        name, data = f"shard.{number:05}.mds", shard(samples)
        (path / name).write_bytes(data)
        raw = about(name, data, ("sha1",))
        entries.append({"format": "mds", "samples": len(samples), "raw_data": raw})
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": entries}))
    assert validate(path, level="valid").n_proven == len(contents)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_bytes_of_a_shard_have_an_answer(tmp_path_factory, data) -> None:
    path = write_mds(tmp_path_factory.mktemp("x"), 1)
    size = (path / "shard.00000.mds").stat().st_size
    content = data.draw(st.binary(min_size=size, max_size=size))
    (path / "shard.00000.mds").write_bytes(content)
    kinds = {each.kind for each in validate(path, level="complete").findings}
    assert kinds <= {FindingKind.STRUCTURE, FindingKind.IMPOSTOR}


@pytest.mark.parametrize("text", ['{"version": 3, "shards": []}', '{"version": 2, "shards": [1]}'])
def test_another_version_or_shape_is_refused(tmp_path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ManifestError, match=r"index\.json"):
        validate(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", '{"shards": []}', '{"chunks": []}', "x"])
def test_another_index_is_not_claimed(tmp_path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    assert not FORMAT.recognizes(str(tmp_path))
    assert "mds" in formats.names()
