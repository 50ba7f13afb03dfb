"""Digests as text: parsed, computed over a file, compared."""

import hashlib
import os
import sys

import pytest

from shardproof import _digest

TEXT = b"shard" * 300_000


@pytest.fixture
def fd(tmp_path):
    (tmp_path / "x").write_bytes(TEXT)
    fd = os.open(tmp_path / "x", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("algorithm", _digest.ALGORITHMS)
def test_a_file_hashes_to_what_hashlib_says(fd: int, algorithm: str) -> None:
    digest = _digest.of_file(fd, algorithm, len(TEXT))

    assert digest == (algorithm, hashlib.new(algorithm, TEXT).hexdigest())
    assert _digest.parse(str(digest)) == digest


def test_only_the_first_bytes_are_read(fd: int) -> None:
    assert _digest.of_file(fd, "sha256", 5).value == hashlib.sha256(b"shard").hexdigest()


def test_not_a_byte_more_than_asked_for_is_read(fd: int) -> None:
    size = 2**20 + 5
    assert _digest.of_file(fd, "sha256", size).value == hashlib.sha256(TEXT[:size]).hexdigest()


def test_a_file_shorter_than_said_ends_the_reading(fd: int) -> None:
    assert _digest.of_file(fd, "sha256", 10**7).value == hashlib.sha256(TEXT).hexdigest()


def test_an_empty_file(fd: int) -> None:
    assert _digest.of_file(fd, "md5", 0).value == hashlib.md5(b"").hexdigest()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256",
        "sha256:",
        "sha256:xyz",
        "sha256:" + "0" * 63,
        "crc32:00000000",
        "sha256:" + "g" * 64,
    ],
)
def test_what_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        _digest.parse(text)


def test_upper_case_is_the_same_digest() -> None:
    upper = "sha256:" + hashlib.sha256(TEXT).hexdigest().upper()

    assert _digest.same(
        _digest.parse(upper), _digest.Digest("sha256", hashlib.sha256(TEXT).hexdigest())
    )


def test_equal_hex_of_another_algorithm_is_another_digest() -> None:
    assert not _digest.same(_digest.Digest("sha1", "00"), _digest.Digest("md5", "00"))
    assert not _digest.same(_digest.Digest("md5", "00"), _digest.Digest("md5", "01"))


class TestXxh64:
    def test_it_is_what_xxhash_says(self, fd: int) -> None:
        xxhash = pytest.importorskip("xxhash", reason="an extra")
        digest = _digest.of_file(fd, "xxh64", len(TEXT))

        assert digest == ("xxh64", xxhash.xxh64(TEXT).hexdigest())
        assert _digest.parse(f"xxh64:{digest.value.upper()}") == digest
        with pytest.raises(ValueError, match="expected 16 hexadecimal digits"):
            _digest.parse("xxh64:unknown")

    def test_without_xxhash_it_is_refused(self, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "xxhash", None)
        with pytest.raises(ValueError, match=r"pip install shardproof\[xxhash\]"):
            _digest.parse("xxh64:" + "0" * 16)
