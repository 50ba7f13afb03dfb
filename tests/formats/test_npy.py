"""Arrays keep the word of their headers, and sequences are those that their ids were made of."""

import hashlib
import os
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from shardproof.formats.plain import NPY as FORMAT
from tests.formats import looking
from tests.helpers.checkpoint_files import flip

LENGTH = 16


def ids_of(data: bytes, n_bytes: int, n: int, *, is_float: bool = False) -> np.ndarray:
    parts = (data[i * n_bytes : (i + 1) * n_bytes] for i in range(n))
    digests = (hashlib.blake2b(part, digest_size=8).digest() for part in parts)
    ids = np.array([int.from_bytes(digest, "little") for digest in digests], "<u8")
    return ids.astype(np.float64).view(np.uint64) if is_float else ids


def write(
    root: Path, index: int, n: int = 10, *, series: str = "train", rest: int = 0, **form: bool
) -> None:
    seed = np.random.default_rng(index)
    path = root / f"{series}_{index:06d}.npy"
    np.save(path, seed.integers(0, 50_000, n * LENGTH + rest, "<u4"))
    has_header = form.pop("has_header", False)
    data = path.read_bytes()[0 if has_header else 128 :]
    beside = "" if series == "train" else f"_{series}"
    np.save(root / f"sample_ids{beside}_{index:06d}.npy", ids_of(data, 4 * LENGTH, n, **form))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for index in range(3):
        write(tmp_path, index)
    return tmp_path


look = partial(looking.named, FORMAT)


def unproven(root: Path) -> list[str]:
    return [path.name for path in looking.look(FORMAT, root, "valid").unproven]


IDS = [f"sample_ids_{index:06d}.npy" for index in range(3)]


def test_a_whole_directory(root: Path) -> None:
    (root / "README.md").write_text("tokens")
    assert FORMAT.recognizes(str(root))
    assert look(root, "valid") == []
    assert unproven(root) == IDS
    prove = FORMAT.read_manifest(str(root)).prove
    assert pickle.loads(pickle.dumps(prove)) == prove


@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("has_header", [False, True])
@pytest.mark.parametrize("series", ["train", "anneal"])
def test_a_changed_token_shows(
    tmp_path: Path, series: str, is_float: bool, has_header: bool
) -> None:
    write(tmp_path, 0, series=series, is_float=is_float, has_header=has_header)
    path = tmp_path / f"{series}_000000.npy"
    assert look(tmp_path, "valid") == []
    assert (path.name in unproven(tmp_path)) == has_header
    flip(path, 128 + 4 * LENGTH * 3 + (0 if has_header else 5))
    expected = "10 sequences of which the ids beside it were made"
    found = "others: 5" if has_header else "others: 3"
    assert look(tmp_path, "valid") == [(path.name, "digest", expected, found)]
    assert look(tmp_path) == []


def test_a_changed_first_sequence_shows(root: Path) -> None:
    path = root / "train_000001.npy"
    for index in (0, 1, 2, 3, 5, 7):
        flip(path, 128 + 4 * LENGTH * index)
    assert [each[3] for each in look(root, "valid")] == ["others: 0, 1, 2, 3, 5 and 1 more"]


def swap(root: Path) -> None:
    (root / "train_000000.npy").rename(root / "x")
    (root / "train_000001.npy").rename(root / "train_000000.npy")
    (root / "x").rename(root / "train_000001.npy")


def test_swapped_shards_show(root: Path) -> None:
    swap(root)
    found = [(name, text) for name, _, _, text in look(root, "valid")]
    text = "others: 0, 1, 2, 3, 4 and 5 more"
    assert found == [(f"train_00000{index}.npy", text) for index in range(2)]


def test_where_not_one_id_is_right_they_may_be_of_something_else(root: Path) -> None:
    swap(root)
    (root / "train_000002.npy").rename(root / "anneal_000002.npy")
    (root / IDS[2]).rename(root / "sample_ids_anneal_000002.npy")
    assert look(root, "valid") == []
    assert {"train_000000.npy", "train_000001.npy"} < set(unproven(root))


def test_tokens_that_are_left_over_are_not_proven(tmp_path: Path) -> None:
    write(tmp_path, 0, rest=5)
    assert unproven(tmp_path) == [IDS[0], "train_000000.npy"]
    flip(tmp_path / "train_000000.npy", 130)
    assert [each[3] for each in look(tmp_path, "valid")] == ["others: 0"]


@pytest.mark.parametrize(
    "ids",
    [np.zeros(10, "<u4"), np.zeros((2, 5), object), *(np.zeros(n, "<u8") for n in (0, 3, 99))],
)
def test_other_ids_prove_nothing(root: Path, ids: np.ndarray) -> None:
    np.save(root / IDS[1], ids, allow_pickle=True)
    assert look(root, "valid") == []
    assert unproven(root) == [*IDS, "train_000001.npy"]


def test_ids_that_are_gone_or_cut_prove_nothing(root: Path) -> None:
    (root / IDS[0]).unlink()
    os.truncate(root / IDS[1], 150)
    assert [each[:2] for each in look(root, "valid")] == [(IDS[1], "structure")]
    assert unproven(root) == [IDS[2], "train_000000.npy", "train_000001.npy"]


def test_ids_behind_a_link_out_of_the_directory_are_not_read(root: Path, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "ids.npy"
    (root / IDS[1]).rename(elsewhere)
    (root / IDS[1]).symlink_to(elsewhere)
    assert [each[:2] for each in look(root, "valid")] == [(IDS[1], "not-regular")]
    assert "train_000001.npy" in unproven(root)


def test_a_sequence_longer_than_a_piece(tmp_path: Path) -> None:
    path = tmp_path / "train_000000.npy"
    np.save(path, np.zeros(5 * 2**20, "u1"))
    np.save(tmp_path / IDS[0], ids_of(path.read_bytes()[128:], 5 * 2**20, 1))
    assert unproven(tmp_path) == [IDS[0]]


def test_a_directory_with_mostly_other_files(root: Path) -> None:
    for index in range(7):
        (root / f"{index}.tar").write_bytes(b"")
    assert not FORMAT.recognizes(str(root))
    assert len(FORMAT.read_manifest(str(root)).files) == 6
