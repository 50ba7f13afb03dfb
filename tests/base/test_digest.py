"""Digests as text: parsed, computed over a file, compared."""

import hashlib
import os
import sys
import threading

import blake3
import pytest
import xxhash

from shardproof._base import digest as _digest

TEXT = b"shard" * 300_000


@pytest.fixture
def fd(tmp_path):
    (tmp_path / "x").write_bytes(TEXT)
    fd = os.open(tmp_path / "x", os.O_RDONLY)
    yield fd
    os.close(fd)


def by_its_package(algorithm: str, data: bytes) -> str:
    name, _, n_bits = algorithm.partition("-")
    if name.startswith("xxh"):
        return getattr(xxhash, algorithm.replace("-", "_"))(data).hexdigest()
    if name == "blake2b" and n_bits:
        return hashlib.blake2b(data, digest_size=int(n_bits) // 8).hexdigest()
    if name == "git":
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    if name == "blake3":
        return blake3.blake3(data).hexdigest()
    if algorithm == "sha256-tree":  # a list of digests, one for each MiB
        leaves = [data[at : at + 2**20] for at in range(0, len(data), 2**20)]
        data = b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)
        return hashlib.sha256(data).hexdigest()
    return hashlib.new(algorithm.replace("-", "_"), data).hexdigest()


@pytest.mark.parametrize("algorithm", _digest._N_DIGITS)
def test_a_file_hashes_to_what_others_say(fd: int, algorithm: str) -> None:
    digest = _digest.of_file(fd, algorithm, len(TEXT))
    assert digest == (algorithm, by_its_package(algorithm, TEXT))
    assert _digest.parse(str(digest)) == digest
    assert _digest.parse(f"{algorithm}:{digest.value.upper()}") == digest
    with pytest.raises(ValueError, match=f"expected {len(digest.value)} hexadecimal digits"):
        _digest.parse(f"{algorithm}:unknown")


@pytest.mark.parametrize(
    "text",
    ["", "sha256", "sha256:xyz", "sha256:" + "0" * 63, "crc32:00000000", "sha256:" + "g" * 64],
)
def test_what_is_no_digest_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        _digest.parse(text)


def test_without_blake3_its_digests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "blake3", None)
    with pytest.raises(ValueError, match=r"pip install 'shardproof\[blake3\]'"):
        _digest.parse("blake3:" + "0" * 64)


ZEROS = {name: f"{name}:" + "0" * n for name, n in _digest._N_DIGITS.items()}


class TestProvable:
    @pytest.mark.parametrize(
        ("names", "expected"),
        [
            (["md5", "sha256"], ["sha256", "md5"]),
            (["sha256", "md5", "sha256"], ["sha256", "md5"]),
            (["sha512", "sha256", "sha3-256", "sha1"], ["sha256", "sha512", "sha3-256", "sha1"]),
            (["sha256", "blake3"], ["blake3", "sha256"]),
            (["xxh3-128", "md5"], ["md5", "xxh3-128"]),
            (["xxh64", "xxh3-128"], ["xxh3-128", "xxh64"]),
            ([], []),
        ],
    )
    def test_the_strongest_and_of_those_the_fastest(self, names, expected) -> None:
        assert _digest.provable(map(ZEROS.get, names)) == [ZEROS[name] for name in expected]

    def test_every_algorithm_has_a_rank(self) -> None:
        assert sorted(_digest._BEST) == sorted(_digest._N_DIGITS)
        for text in ZEROS.values():
            assert _digest.provable([text]) == [text]

    @pytest.mark.parametrize("text", ["", "x", "shake128:00", "whirlpool:00"])
    def test_what_can_not_be_proven_does_not_count(self, text: str) -> None:
        assert _digest.provable([text]) == []
        assert _digest.provable([text, ZEROS["md5"]]) == [ZEROS["md5"]]

    def test_what_is_not_installed_does_not_count(self, monkeypatch) -> None:
        monkeypatch.setitem(sys.modules, "blake3", None)
        assert _digest.provable([ZEROS["blake3"]]) == []
        assert _digest.provable([ZEROS["blake3"], ZEROS["sha1"]]) == [ZEROS["sha1"]]


@pytest.mark.parametrize("algorithm", ZEROS)
def test_the_digest_of_nothing(algorithm: str) -> None:
    value = _digest.begin(algorithm, 0).hexdigest()
    assert _digest.is_of_nothing(f"{algorithm}:{value}")
    assert not _digest.is_of_nothing(ZEROS[algorithm])
    assert not _digest.is_of_nothing(f"x{algorithm}:{value}")


@pytest.mark.parametrize("size", [5, len(TEXT), 10**7])
@pytest.mark.parametrize("start", [0, 88, 2**20 + 3, len(TEXT) + 7])
def test_bytes_from_the_start_on_up_to_the_size_are_digested(fd: int, size, start) -> None:
    digest = _digest.of_file(fd, "sha256", size, start=start)
    assert digest.value == hashlib.sha256(TEXT[start:size]).hexdigest()


@pytest.mark.parametrize("algorithm", ["blake3", "sha256-tree", "sha256"])
@pytest.mark.parametrize("threads", [None, 1, 2])
def test_threads_change_no_digest(fd: int, algorithm: str, threads: int | None) -> None:
    found = _digest.of_file(fd, algorithm, len(TEXT), start=7, threads=threads)
    expected = _digest.begin(algorithm, len(TEXT))
    expected.update(TEXT[7:])
    assert found.value == expected.hexdigest()


@pytest.mark.parametrize(
    ("threads", "asked"), [(None, -1), (1, 1), (3, 3), (4, -1), (9, -1)], ids=str
)
def test_blake3_starts_threads_of_its_own_for_fewer_than_all_processors(
    monkeypatch, threads: int | None, asked: int
) -> None:
    made = []

    class Recorded:
        AUTO = -1

        def __init__(self, *, max_threads: int) -> None:
            made.append(max_threads)

    monkeypatch.setattr(blake3, "blake3", Recorded)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4), raising=False)
    _digest.begin("blake3", 0, threads=threads)
    assert made == [asked]


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20, 7_654_321])
@pytest.mark.parametrize("piece", [1000, 2**20, 2**20 + 17, 2**24])
def test_a_tree_is_the_same_whatever_pieces_come_and_its_threads_end(size: int, piece: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    digest = _digest.begin("sha256-tree", size)
    for at in range(0, size, piece):
        digest.update(memoryview(data)[at : min(at + piece, size)])
    assert digest.hexdigest() == by_its_package("sha256-tree", data[:size])
    assert digest.hexdigest() == digest.hexdigest()  # asking for it changes nothing
    assert not [t for t in threading.enumerate() if "digest" in t.name]
