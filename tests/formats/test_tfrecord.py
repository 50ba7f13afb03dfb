"""TFRecord: records follow one another up to the end of the file."""

import gzip
import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest

from shardproof import validate
from tests.formats.looking import found_in


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


def write_set(path: Path, n_files: int = 3) -> Path:
    for number in range(n_files):
        (path / f"train.tfrecord-{number:05}-of-{n_files:05}").write_bytes(WHOLE)
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("a.tfrecord", "a.tfrecords", "a-00000-of-00001.tfrecord", "a.tfrecord-00007"),
        *("a.tfrecord-00000-of-00001.gz", "a.tfrecord.zlib"),
        "mnist-test.tfrecord-00000-of-00001",
    ],
)
def test_names(tmp_path, name: str) -> None:
    (tmp_path / name).write_bytes(WHOLE)
    (tmp_path / "a.tfrecord.bad-0123abcd").write_bytes(b"what a repair moved away")
    assert validate(tmp_path, level="complete").n_files == 1
    for other in ("a.tfrecord.1", "a.tfrecord-old"):  # with other ends, but beside it
        (tmp_path / other).write_bytes(WHOLE)
    assert validate(tmp_path, level="complete").n_files == 3


PACK = {"gzip": gzip.compress, "zlib": zlib.compress}
LARGE = b"".join(record(random.Random(n).randbytes(999)) for n in range(200))
NAMES = ["a.tfrecord.gz", "a.tfrecord", "a.tfrecords-00000-of-00001"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", [b"", WHOLE, LARGE, record(bytes(2**17 + 3))])
@pytest.mark.parametrize("pack", PACK)
def test_a_packed_file_is_sound_whatever_its_name(tmp_path, name, pack, text: bytes) -> None:
    (tmp_path / name).write_bytes(PACK[pack](text))
    report = validate(tmp_path, level="valid")
    assert (report.ok, report.n_proven) == (True, 1), str(report)


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("n_kept", [0.1, 0.5, 0.99])
def test_a_packed_file_that_was_cut(tmp_path, pack: str, n_kept: float) -> None:
    """A small one is unpacked at `complete`; of others a cut may look like an end until `valid`."""
    path = tmp_path / "a.tfrecord.gz"
    for text, level in ((WHOLE, "complete"), (LARGE, "valid")):
        data = PACK[pack](text)
        path.write_bytes(data[: int(len(data) * n_kept)])
        assert len(found_in(tmp_path, level)) == 1


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("text", [WHOLE, LARGE, record(bytes(2**17 + 3))])
@pytest.mark.parametrize("level", ["complete", "valid"])
def test_what_is_packed_may_be_no_records(tmp_path, pack: str, text: bytes, level: str) -> None:
    (tmp_path / "a.tfrecord").write_bytes(PACK[pack](b"\1" + text))
    assert [kind for kind, _ in found_in(tmp_path, level)] == ["structure"]


@pytest.mark.parametrize("pack", [*PACK, "nothing"])
@pytest.mark.parametrize("at", [40, -5, -2])
@pytest.mark.parametrize("text", [WHOLE, LARGE, record(bytes(2**17 + 3))])
def test_data_that_changed_before_they_were_packed(tmp_path, pack, at: int, text: bytes) -> None:
    data = bytearray(text)
    data[at] ^= 1
    (tmp_path / "a.tfrecord").write_bytes(PACK.get(pack, bytes)(data))
    [(kind, name)] = found_in(tmp_path, "valid")
    assert (kind in {"digest", "structure"}, name) == (True, "a.tfrecord")


@pytest.mark.parametrize("pack", PACK)
@pytest.mark.parametrize("at", [3, 12, 40, 60_000, 100_000])
def test_any_harm_to_a_large_packed_file_is_a_finding(tmp_path, pack: str, at: int) -> None:
    data = bytearray(PACK[pack](LARGE))
    data[at : at + 9] = b"\xff" * 9
    (tmp_path / "a.tfrecord").write_bytes(data)
    at_the_begin = [("structure", "a.tfrecord")] if at < 60_000 else []
    assert found_in(tmp_path) == at_the_begin
    assert found_in(tmp_path, "valid") == (at_the_begin or [("digest", "a.tfrecord")])


def test_a_record_may_lie_in_several_streams_of_gzip(tmp_path) -> None:
    data = b"".join(gzip.compress(LARGE[at : at + 5]) for at in range(0, 20_000, 5))
    (tmp_path / "a.tfrecord").write_bytes(data + gzip.compress(LARGE[20_000:]))
    assert found_in(tmp_path, "valid") == []


@pytest.mark.slow
@pytest.mark.parametrize("n_bytes", [0x178, 0x5E78, 0x9C78, 0xDA78, 0x8B1F])
def test_a_length_may_look_like_what_packs_a_file(tmp_path, n_bytes: int) -> None:
    (tmp_path / "a.tfrecord").write_bytes(record(bytes(n_bytes)))
    assert found_in(tmp_path, "valid") == []


@pytest.mark.slow
def test_a_record_that_claims_to_be_endless_takes_no_memory(tmp_path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(WHOLE)
    assert found_in(tmp_path, "valid") == []  # its tables are made now
    length = struct.pack("<Q", 2**62)
    (tmp_path / "a.tfrecord").write_bytes(gzip.compress(length + masked(length) + bytes(3 * 10**6)))
    tracemalloc.start()
    assert found_in(tmp_path, "valid") == [("digest", "a.tfrecord")]
    assert tracemalloc.get_traced_memory()[1] < 2 * 10**6
    tracemalloc.stop()


def test_spark_leaves_checksums_beside_records_too(tmp_path) -> None:
    (tmp_path / "part-00000.tfrecord").write_bytes(WHOLE)
    (tmp_path / ".part-00001.tfrecord.gz.crc").write_bytes(b"crc\0\0\0\2\0")
    (tmp_path / "_temporary").mkdir()
    found = [("missing", "part-00001.tfrecord.gz"), ("structure", "_temporary")]
    assert found_in(tmp_path) == found


@pytest.mark.parametrize("at", [0, 3, 8, 11, 20, 300])
def test_a_flipped_bit_of_a_length_or_its_checksum(tmp_path, at: int) -> None:
    data, number = bytearray(WHOLE), at % 20
    data[sum(range(16, 16 + number)) + at % 12] ^= 1
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


@pytest.mark.parametrize("bits", range(9, 16))
def test_zlib_with_a_window_of_any_size_is_sound(tmp_path: Path, bits: int) -> None:
    """TensorFlow's own option ``window_bits``."""
    packer = zlib.compressobj(wbits=bits)
    data = packer.compress(WHOLE) + packer.flush()
    (tmp_path / "x.tfrecord").write_bytes(data)
    report = validate(tmp_path, level="valid")
    assert (report.ok, report.n_proven) == (True, 1), str(report)
    (tmp_path / "x.tfrecord").write_bytes(data[:50])
    assert not validate(tmp_path, level="complete").ok


def test_a_missing_one_is_known_by_the_names_of_the_others(tmp_path) -> None:
    write_set(tmp_path)
    (tmp_path / "train.tfrecord-00001-of-00003").unlink()
    assert found_in(tmp_path) == [("missing", "train.tfrecord-00001-of-00003")]
