"""TFRecord: records follow one another up to the end of the file."""

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import FindingKind, ManifestNotFoundError, validate
from shardproof.formats.samples.tfrecord import FORMAT
from tests.helpers.drawing import examples


def crc32c(data: bytes) -> int:
    """Bit by bit, as the polynomial has it: not the table under test."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum ^= byte
        for _ in range(8):
            checksum = (checksum >> 1) ^ (0x82F63B78 * (checksum & 1))
    return checksum ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


WHOLE = b"".join(record(bytes([n]) * n) for n in range(20))


def test_the_checksum_is_the_one_of_the_specification() -> None:
    """RFC 3720, B.4: 32 bytes of zeros."""
    assert crc32c(bytes(32)) == 0x8A9136AA


def write_set(path: Path, n_files: int = 3) -> Path:
    for number in range(n_files):
        (path / f"train.tfrecord-{number:05}-of-{n_files:05}").write_bytes(WHOLE)
    return path


def found_in(path: Path) -> list[tuple[str, str]]:
    return [(e.kind.value, e.path.name) for e in validate(path, level="complete").findings]


def test_a_whole_set(tmp_path) -> None:
    report = validate(write_set(tmp_path), level="complete")
    assert (report.format, report.ok, report.n_files) == ("tfrecord", True, 3)


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecords", "a-00000-of-00001.tfrecord"])
def test_names(tmp_path, name: str) -> None:
    (tmp_path / name).write_bytes(WHOLE)
    assert validate(tmp_path, level="complete").n_files == 1


def test_a_missing_one_is_known_by_the_names_of_the_others(tmp_path) -> None:
    write_set(tmp_path)
    (tmp_path / "train.tfrecord-00001-of-00003").unlink()
    assert found_in(tmp_path) == [("missing", "train.tfrecord-00001-of-00003")]


def test_a_packed_file_tells_nothing(tmp_path) -> None:
    (tmp_path / "a.tfrecord.gz").write_bytes(b"\x1f\x8b packed")
    assert found_in(tmp_path) == []


@pytest.mark.parametrize("cut", [1, 5, 11, 12, 20, 35])
def test_a_cut_in_a_record(tmp_path, cut: int) -> None:
    path = write_set(tmp_path) / "train.tfrecord-00001-of-00003"
    path.write_bytes(WHOLE[:-cut])
    assert found_in(tmp_path) == [] if cut == 35 else [("structure", path.name)]


@pytest.mark.parametrize("at", [0, 3, 8, 11, 20, 300])
def test_a_flipped_bit_of_a_length_or_its_checksum(tmp_path, at: int) -> None:
    starts, position = [], 0
    for n in range(20):
        starts.append(position)
        position += n + 16
    data = bytearray(WHOLE)
    data[starts[at % 20] + at % 12] ^= 1
    path = write_set(tmp_path) / "train.tfrecord-00001-of-00003"
    path.write_bytes(data)
    assert found_in(tmp_path) == [("structure", path.name)]


@pytest.mark.parametrize("n_bytes", range(4060, 4084))
def test_heads_wherever_a_block_ends(tmp_path, n_bytes: int) -> None:
    """4096 bytes are read at once: what lies across two blocks, or behind a long record."""
    path = tmp_path / "a.tfrecord"
    whole = record(bytes(n_bytes)) + record(bytes(9000)) + record(b"1234")
    path.write_bytes(whole)
    assert found_in(tmp_path) == []
    path.write_bytes(whole[:-1])
    assert found_in(tmp_path) == [("structure", "a.tfrecord")]


def test_more_bytes_at_the_end(tmp_path) -> None:
    path = write_set(tmp_path) / "train.tfrecord-00001-of-00003"
    path.write_bytes(WHOLE + b"\0")
    assert found_in(tmp_path) == [("structure", path.name)]


@examples(100)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=30))
def test_sound_ones_have_no_findings(tmp_path_factory, contents: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("x")
    (path / "a.tfrecord").write_bytes(b"".join(map(record, contents)))
    assert found_in(path) == []


@examples(200)
@given(st.binary(min_size=1, max_size=100), st.integers(0, len(WHOLE)))
def test_any_bytes_have_an_answer(tmp_path_factory, data: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("x")
    (path / "a.tfrecord").write_bytes(WHOLE[:at] + data)
    kinds = {each.kind for each in validate(path, level="complete").findings}
    assert kinds <= {FindingKind.STRUCTURE, FindingKind.IMPOSTOR}


def test_nothing_there(tmp_path) -> None:
    assert not FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestNotFoundError):
        FORMAT.read_manifest(str(tmp_path))
