"""MosaicML Streaming: what the index states of each shard, and what the shards say themselves."""

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shardproof import FindingKind, ManifestError, validate
from shardproof._base.opening import Descriptor
from shardproof.formats.samples import MDS as FORMAT
from shardproof.testing.faults import FileSystemFaults
from tests.formats.looking import contract, found_in, of_golden, put, said_of
from tests.helpers.checkpoint_files import flip

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
        entry = {"column_names": ["x"], "compression": None, "format": "mds", "samples": 3}
        entry |= {"hashes": list(hashes), "size_limit": 2**26, "version": 2, "zip_data": None}
        entries.append(entry | {"raw_data": about(name, data, hashes)} | changes)
    (path / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    return path


TestFormat = contract(FORMAT, "index.json", lambda n, base: write_mds(base, n), "*.mds")


def change_index(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((path / "index.json").read_text())
    change(index["shards"])
    (path / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("hashes", [("sha1",), ("md5", "sha256"), ("sha256", "blake2b")])
def test_the_strongest_digest_is_proven(tmp_path, hashes) -> None:
    write_mds(tmp_path, hashes=hashes)
    assert validate(tmp_path, level="valid").n_proven == 3
    path = tmp_path / "shard.00001.mds"
    flip(path)
    assert found_in(tmp_path) == []
    assert found_in(tmp_path, "valid") == [("digest", path.name)]


@pytest.mark.parametrize("theirs", ["xxh3_128", "xxh128", "xxh64", "xxh3_64", "xxh32"])
def test_the_digests_of_xxhash(tmp_path, theirs: str) -> None:
    import xxhash

    data = (write_mds(tmp_path, 1) / "shard.00000.mds").read_bytes()
    hashes = {theirs: getattr(xxhash, theirs)(data).hexdigest()}
    change_index(tmp_path, lambda shards: shards[0]["raw_data"].update(hashes=hashes))
    assert validate(tmp_path, level="valid").n_proven == 1


def test_one_that_nobody_knows_proves_nothing(tmp_path) -> None:
    hashes = {"sha3_999": "00"}
    change_index(write_mds(tmp_path, 1), lambda shards: shards[0]["raw_data"].update(hashes=hashes))
    report = validate(tmp_path, level="valid")
    assert (report.ok, len(report.unproven)) == (True, 1)


ZSTD = b"\x28\xb5\x2f\xfd\x20\x06\x31\0\0zipped"
"""A frame of one segment and one block, which is stored as it is."""


@pytest.mark.parametrize("head", [bytes(64), b"PAR1" * 4])
@pytest.mark.parametrize("name", ["mds-zstd", "mds-gz", "mds-bz2"])
def test_another_head_of_a_packed_shard_is_seen(tmp_path, name: str, head: bytes) -> None:
    path = of_golden(name, tmp_path)
    shard = min(path.glob("shard.00001.*"))
    shard.write_bytes(head + shard.read_bytes()[len(head) :])
    assert found_in(path, "complete") == [("structure", shard.name)]


def test_a_shard_is_there_plain_or_compressed_or_both(tmp_path) -> None:
    path = write_mds(tmp_path, 1, zip_data=about("shard.00000.mds.zstd", ZSTD, ("sha1",)))
    plain, packed = path / "shard.00000.mds", path / "shard.00000.mds.zstd"
    packed.write_bytes(ZSTD)
    assert validate(path, level="complete").n_files == 2
    plain.unlink()
    assert validate(path, level="valid").n_proven == 1
    packed.write_bytes(b"zippe")
    assert found_in(path) == [("size", packed.name)]
    packed.unlink()
    assert found_in(path, "present") == [("missing", packed.name)]


BEGIN = 4 * 5 + len(CONFIG)
HARM: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "fewer samples": (lambda data: put(data, 0, 2), "3 samples", "2 samples"),
    "a first sample among the offsets": (
        lambda data: put(data, 4, 8),
        "a first sample from byte 20 on",
        "one at byte 8",
    ),
    "an offset that goes back": (
        lambda data: put(data, 8, 0),
        "samples one after the other",
        "offsets that go back",
    ),
    "an end beyond the file": (
        lambda data: put(data, 16, 2**31),
        f"samples up to byte {BEGIN + 24}",
        f"up to byte {2**31}",
    ),
    "a description that does not begin": (
        lambda data: put(data, 20, 0),
        f"a JSON object from byte 20 to {BEGIN}",
        r"one from b'\x00' to b'}'",
    ),
    "a description that does not end": (
        lambda data: put(data, BEGIN - 4, 0),
        f"a JSON object from byte 20 to {BEGIN}",
        r"one from b'{' to b'\x00'",
    ),
}


@pytest.mark.parametrize("harm", HARM)
def test_harm_that_keeps_the_size(tmp_path, harm: str) -> None:
    write_mds(tmp_path, 2)
    path, (change, expected, found) = tmp_path / "shard.00001.mds", HARM[harm]
    path.write_bytes(change(path.read_bytes()))
    assert found_in(tmp_path) == [("structure", path.name)]
    assert said_of(tmp_path) == [(expected, found)]


def write_one(path: Path, data: bytes, n_samples: int) -> Path:
    (path / "shard.00000.mds").write_bytes(data)
    entry = {"format": "mds", "samples": n_samples, "raw_data": about("shard.00000.mds", data, ())}
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": [entry]}))
    return path


@pytest.mark.parametrize("n_samples", [0, 1, 1764, 1790, 2043, 2044, 2045, 2046, 2047, 5000])
def test_the_offsets_may_end_anywhere(tmp_path, n_samples: int) -> None:
    whole, end = shard([b"ab"] * n_samples), 4 * (n_samples + 2)
    assert found_in(write_one(tmp_path, whole, n_samples)) == []
    size = len(whole)
    expected = ("samples one after the other", "offsets that go back")
    if n_samples == 0 or n_samples > 2046:
        expected = (f"samples up to byte {size}", "up to byte 7")
    for harmed, said in [
        (put(whole, end - 4, 7), expected),
        (whole[:end] + b"!" + whole[end + 1 :], (f"a JSON object from byte {end} to", "")),
    ]:
        [(expected_here, found)] = said_of(write_one(tmp_path, harmed, n_samples))
        assert expected_here.startswith(said[0])
        assert found.startswith(said[1])


def test_offsets_that_the_file_has_no_room_for(tmp_path) -> None:
    data = struct.pack("<3I", 500, 8, 8)
    assert said_of(write_one(tmp_path, data, 500)) == [("501 offsets", "12 bytes in all")]


def test_a_shard_that_is_cut_while_it_is_looked_at(tmp_path) -> None:
    manifest = FORMAT.read_manifest(str(write_one(tmp_path, struct.pack("<I", 1), 1)))
    with (tmp_path / "shard.00000.mds").open("rb") as file:
        [promised], probe = manifest.files, manifest.probe
        assert probe is not None
        mismatch = probe(promised, Descriptor(file.fileno()), 1000)
    assert mismatch is not None
    assert mismatch.expected == "2 offsets"


def test_a_description_may_be_left_out_or_long(tmp_path) -> None:
    """No reader needs it, and others than Streaming write such shards too."""
    data = struct.pack("<3I", 1, 12, 15) + b"abc"
    assert found_in(write_one(tmp_path, data, 1)) == []
    config = b"{" + b" " * 5000 + b"}"
    begin = 12 + len(config)
    data = struct.pack("<3I", 1, begin, begin + 3) + config + b"abc"
    assert found_in(write_one(tmp_path, data, 1)) == []
    begin += 2**20
    data = struct.pack("<3I", 1, begin, begin + 3) + config + bytes(2**20) + b"abc"
    assert said_of(write_one(tmp_path, data, 1)) == [
        ("a first sample from byte 12 on", f"one at byte {begin}")
    ]


@pytest.mark.parametrize("text", ['{"version": 3, "shards": []}', '{"version": 2, "shards": [1]}'])
def test_another_version_or_shape_is_refused(tmp_path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(ManifestError, match=r"index\.json"):
        validate(tmp_path, format="mds")


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", '{"shards": []}', '{"chunks": []}', "x", ""),
        *('{"version": 2, "shards": ["a"]}', '{"version": "1.0", "shards": [{"name": "a"}]}'),
    ],
)
def test_another_index_is_not_claimed(tmp_path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    assert not FORMAT.recognizes(str(tmp_path))


def test_to_recognize_one_takes_a_small_read(tmp_path) -> None:
    """However many shards it lists."""
    change_index(write_mds(tmp_path, 1), lambda shards: shards.extend(shards * 998))
    with FileSystemFaults(tmp_path) as fs:
        assert FORMAT.recognizes(str(tmp_path))
    assert sum(call.operation == "read" for call in fs.calls) <= 2


def test_a_merged_index(tmp_path: Path) -> None:
    """Streaming's `merge_index` leaves those of the parts where they are."""
    entries = []
    for part in ("a", "b"):
        change_index(write_mds(tmp_path / part), entries.extend)
        for entry in entries[-3:]:
            entry["raw_data"]["basename"] = f"{part}/{entry['raw_data']['basename']}"
    (tmp_path / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    (tmp_path / "b" / "other.json").touch()
    found = validate(tmp_path, strict=True, level="complete").findings
    assert [(each.kind, each.path.name) for each in found] == [(FindingKind.STRAY, "other.json")]
