"""The headers of llm.c's shards say how long they are."""

import os
import struct
from functools import partial
from pathlib import Path

import pytest

from shardproof.errors import ManifestNotFoundError
from shardproof.formats.plain import LLMC as FORMAT
from tests.formats.looking import named

GPT2, LLAMA3, EVALUATION = (20240520, 1, 2), (20240801, 7, 4), (20240522, 1, 0)


def shard(n_tokens: int, kind: tuple[int, int, int] = GPT2) -> bytes:
    magic, version, token_bytes = kind
    return struct.pack("<3i1012x", magic, version, n_tokens) + b"\7" * n_tokens * token_bytes


def evaluation_shard(*lengths: int) -> bytes:
    parts = [struct.pack("<2H", 2**16 - 1, 4 + n) + b"\7" * n for n in lengths]
    return shard(len(lengths), EVALUATION) + b"".join(parts)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index in range(1, 4):
        (tmp_path / f"fineweb_train_{index:06d}.bin").write_bytes(shard(1000))
    (tmp_path / "fineweb_val_000000.bin").write_bytes(shard(100, LLAMA3))
    (tmp_path / "hellaswag_val.bin").write_bytes(evaluation_shard(20, 2, 60))
    (tmp_path / "gpt2_124M.bin").write_bytes(struct.pack("<3i", 20240326, 5, 1024) + bytes(5000))
    (tmp_path / "train.bin").write_bytes(b"\7" * 999)
    return tmp_path


look = partial(named, FORMAT)


def test_a_whole_directory(root: Path) -> None:
    assert FORMAT.recognizes(str(root))
    names = [file.name for file in FORMAT.read_manifest(str(root)).files]
    assert names[2:] == ["fineweb_train_000003.bin", "fineweb_val_000000.bin", "hellaswag_val.bin"]
    assert look(root, "valid") == []


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fineweb_train_000002.bin", "3024 bytes for 1000 tokens"),
        ("fineweb_val_000000.bin", "1424 bytes for 100 tokens"),
        ("hellaswag_val.bin", "1118 bytes for 3 examples"),
    ],
)
def test_another_size(root: Path, name: str, expected: str, change: int) -> None:
    size = (root / name).stat().st_size + change
    os.truncate(root / name, size)
    assert look(root) == [(name, "structure", expected, f"{size} bytes")]


@pytest.mark.parametrize("data", [b"\7" * 20, bytes(3024), shard(-1), shard(0)[:1000], b"\7"])
def test_a_torn_header(root: Path, data: bytes) -> None:
    name = "fineweb_train_000002.bin"
    (root / name).write_bytes(data)
    expected = "a header of llm.c, 1024 bytes"
    assert look(root) == [(name, "structure", expected, repr(data[:12]))]


def test_the_first_shards_may_be_the_torn_ones_and_one_may_have_nothing_yet(root: Path) -> None:
    for index in (1, 2):
        (root / f"fineweb_train_{index:06d}.bin").write_bytes(b"\7" * 99)
    (root / "c4_val.bin").touch()
    kinds = [("c4_val.bin", "empty")]
    kinds += [(f"fineweb_train_00000{index}.bin", "structure") for index in (1, 2)]
    assert [each[:2] for each in look(root)] == kinds


def test_an_example_in_another_place(root: Path) -> None:
    path = root / "hellaswag_val.bin"
    data = bytearray(path.read_bytes())
    data[1024 + 2 : 1024 + 4] = struct.pack("<H", 28)
    path.write_bytes(data)
    expected = ("example 1 at byte 1052", repr(bytes(data[1052:1056])))
    assert look(root) == [(path.name, "structure", *expected)]
    data[1024 + 2 : 1024 + 4] = bytes(2)
    path.write_bytes(data)
    assert [each[2] for each in look(root)] == ["example 0 at byte 1024"]


def test_more_examples_than_the_writer_writes(root: Path) -> None:
    path = root / "hellaswag_val.bin"
    path.write_bytes(evaluation_shard(*[0] * 70_000))
    assert [each[2] for each in look(root)] == [f"{1024 + 4 * 2**16} bytes for 70000 examples"]
    path.write_bytes(shard(70_000, EVALUATION) + evaluation_shard(*[0] * 2**16)[1024:])
    assert [each[1] for each in look(root)] == ["structure"]


@pytest.mark.parametrize("kind", [(20240520, 2), (20240801, 1), (20240522, 2)])
def test_versions_that_are_not_known_have_no_law(root: Path, kind: tuple[int, int]) -> None:
    (root / "fineweb_train_000002.bin").write_bytes(shard(1000, (*kind, 1)))
    assert look(root) == []


def test_other_directories(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"\7" * 999)
    (tmp_path / "link.bin").symlink_to("nowhere")
    (tmp_path / "loop.bin").symlink_to("loop.bin")
    assert not FORMAT.recognizes(str(tmp_path))
    with pytest.raises(ManifestNotFoundError, match=r"\(\*\.bin\), found none"):
        FORMAT.read_manifest(str(tmp_path))
