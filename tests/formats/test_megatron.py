"""Pairs of data and index agree, or it is said which file does not."""

import os
import struct
from functools import partial
from pathlib import Path

import pytest

from shardproof.errors import ManifestNotFoundError
from shardproof.formats.samples import MEGATRON as FORMAT
from tests.formats.looking import named
from tests.helpers import megatron

DOCUMENTS = [[[1, 2, 3], [4]], [[5, 6]], [], [[7, 8, 9, 10]]]
N_SEQUENCES, N_TOKENS = 4, 10


def write(root: Path, name: str, documents=DOCUMENTS, dtype: str = "u2") -> None:
    megatron.write(root / f"{name}.bin", root / f"{name}.idx", documents, dtype)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index in range(3):
        write(tmp_path, f"shard_{index:06d}")
    return tmp_path


look = partial(named, FORMAT)


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_a_whole_directory(root: Path) -> None:
    assert FORMAT.recognizes(str(root))
    files = FORMAT.read_manifest(str(root)).files
    assert [(file.name, file.size, file.n_items) for file in files[:2]] == [
        ("shard_000000.bin", 2 * N_TOKENS, N_SEQUENCES),
        ("shard_000000.idx", None, N_SEQUENCES),
    ]
    assert look(root, "valid") == []


def test_an_index_with_modes(root: Path) -> None:
    path = root / "shard_000000.idx"
    path.write_bytes(path.read_bytes() + b"\1" * N_SEQUENCES)
    assert look(root) == []
    path.write_bytes(path.read_bytes() + b"\1")
    size = path.stat().st_size
    expected = f"{size - 5} bytes for 4 sequences and 5 boundaries"
    assert look(root) == [(path.name, "structure", expected, f"{size} bytes")]


def test_missing_files(root: Path) -> None:
    (root / "shard_000001.bin").unlink()
    (root / "shard_000002.idx").unlink()  # as one who is killed leaves it: it is written last
    (root / "wiki_text_document.bin").touch()  # of which there is no other
    missing = [("shard_000001.bin", "missing"), ("shard_000002.idx", "missing")]
    assert [each[:2] for each in look(root, "present")] == missing
    for name in ("shard_000000.bin", "shard_000000.idx"):
        (root / name).rename(root / f"c4_text_document{name[-4:]}")
    assert ("wiki_text_document.idx", "missing") in [each[:2] for each in look(root, "present")]


HEADER = "the header of an index"


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda path: os.truncate(path, 20), HEADER),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), HEADER),
        (lambda path: overwrite(path, 9, b"\2"), "version 1, type of tokens 1 to 8"),
        (lambda path: overwrite(path, 17, b"\x09"), "version 1, type of tokens 1 to 8"),
        (lambda path: os.truncate(path, 100), "122 bytes for 4 sequences and 5 boundaries"),
        (lambda path: overwrite(path, 33, b"\xff"), "bytes for 4 sequences and"),
        (lambda path: overwrite(path, 25, b"\xff"), "sequences and 5 boundaries"),
        (lambda path: overwrite(path, 82, b"\1"), "documents from sequence 0 to 4"),
        (lambda path: overwrite(path, 114, b"\3"), "documents from sequence 0 to 4"),
    ],
)
def test_a_torn_index_is_a_finding_and_the_others_are_looked_at(
    root: Path, damage, expected: str
) -> None:
    path = root / "shard_000001.idx"
    damage(path)
    os.truncate(root / "shard_000002.bin", 10)
    first, second = look(root)
    assert (first[:2], expected in first[2]) == ((path.name, "structure"), True)
    assert second[:2] == ("shard_000002.bin", "size")


def test_an_index_of_no_documents_and_one_that_can_not_be_opened(root: Path) -> None:
    write(root, "a", [])
    (root / "a.idx").write_bytes((root / "a.idx").read_bytes()[:26] + bytes(8))
    (root / "shard_000001.idx").unlink()
    os.mkfifo(root / "shard_000001.idx")
    first, second = look(root)
    assert first == ("a.idx", "structure", "documents from sequence 0 to 0", "none")
    assert second[:2] == ("shard_000001.idx", "not-regular")


def test_sequences_in_another_order_have_no_law(root: Path) -> None:
    overwrite(root / "shard_000001.idx", 34, struct.pack("<4i4q", 1, 3, 4, 2, 6, 0, 12, 8))
    os.truncate(root / "shard_000001.bin", 21)
    assert look(root) == []


@pytest.mark.parametrize(("length", "pointer"), [(-9, 12), (4, -12)])
def test_numbers_below_zero_have_no_law(root: Path, length: int, pointer: int) -> None:
    path = root / "shard_000001.idx"
    overwrite(path, 34 + 12, struct.pack("<i", length))
    overwrite(path, 34 + 16 + 24, struct.pack("<q", pointer))
    assert FORMAT.read_manifest(str(root)).files[2].size is None


def test_other_files_of_such_names(root: Path) -> None:
    (root / "mnist.idx").write_bytes(b"\0\0\x08\3")
    (root / "of old.idx").write_bytes(b"TNTIDX\0\0" + bytes(30))
    (root / "of old.bin").write_bytes(b"data")
    (root / "alone.bin").write_bytes(b"data")
    assert len(FORMAT.read_manifest(str(root)).files) == 6


def test_other_directories(tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(b"\0\0\x08\3")
    (tmp_path / "b.idx").mkdir()
    assert not FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestNotFoundError, match=r"\(\*\.idx\), found none"):
        FORMAT.read_manifest(str(tmp_path))
