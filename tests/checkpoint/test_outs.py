"""Arrays that are there are read into: filled and proven, or refused as a whole before that."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.checkpoint import MultiShardLoader
from shardproof.errors import CheckpointError
from tests.helpers import checkpoint_files as files
from tests.helpers.saving import saved

RANKS = [
    {"a": np.arange(15.0).reshape(5, 3), "none": np.zeros((0, 4), np.int8)},
    {"a": np.full((5, 3), 2.5), "c": np.arange(7, dtype=np.uint16), "one": np.array(1 + 2j)},
]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return saved(tmp_path / "m", RANKS)


def like(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays of the same types and shapes, in which something else is."""
    return {name: np.full_like(array, 77) for name, array in arrays.items()}


@pytest.mark.parametrize("algorithm", ["sha256", "sha256-tree", "blake3"])
@pytest.mark.parametrize("level", ["valid", "complete"])
def test_they_are_filled_and_returned(tmp_path: Path, level: Any, algorithm: str) -> None:
    prefix = saved(tmp_path / "m", RANKS, algorithm=algorithm)
    loader, outs = MultiShardLoader(level=level), [like(arrays) for arrays in RANKS]
    found = loader.load_all_shards(prefix, out=outs)
    for arrays, out, expected in zip(found, outs, RANKS, strict=True):
        assert files.same(out, expected)
        assert [*arrays] == [*expected]
        assert all(arrays[name] is out[name] for name in expected)
    out = like(RANKS[1])
    assert loader.load_shard(prefix, 1, out=out)["c"] is out["c"]
    assert files.same(out, RANKS[1])


def read_only() -> np.ndarray:
    array = np.zeros((5, 3))
    array.flags.writeable = False
    return array


MISFITS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "type": (lambda: np.zeros((5, 3), "f4"), TypeError, "expected float64, found float32"),
    "order of bytes": (lambda: np.zeros((5, 3), ">f8"), TypeError, "expected float64, found >f8"),
    "shape": (lambda: np.zeros((3, 5)), ValueError, r"expected the shape \(5, 3\), found"),
    "Fortran": (lambda: np.zeros((5, 3), order="F"), ValueError, "in C order"),
    "strided": (lambda: np.zeros((5, 6))[:, ::2], ValueError, "in C order"),
    "backwards": (lambda: np.zeros((5, 3))[::-1], ValueError, "in C order"),
    "broadcast": (lambda: np.broadcast_to(np.zeros(1), (5, 3)), ValueError, "in C order"),
    "read-only": (read_only, ValueError, "that can be written"),
    "masked": (lambda: np.ma.zeros((5, 3)), TypeError, "expected an array of numpy"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_what_does_not_fit_is_refused(prefix: Path, misfit: str) -> None:
    make, error, text = MISFITS[misfit]
    outs = [like(arrays) for arrays in RANKS]
    outs[1]["a"] = make()
    with pytest.raises(error, match=r"^out\['a'\]: .*" + text):
        MultiShardLoader().load_shard(prefix, 1, out=outs[1])
    with pytest.raises(error, match=r"^out\[1\]\['a'\]: .*" + text):
        MultiShardLoader().load_all_shards(prefix, out=outs)


def test_what_does_not_fit_is_told_before_anything_is_opened(prefix: Path) -> None:
    memory = np.full((9, 3), 77.0)
    outs = [like(arrays) for arrays in RANKS]
    for rank in range(2):
        files.shard_path(prefix, rank).unlink()  # or that would be told
    for change, problem in {
        "b": (np.zeros(3), r"out\[0\]\['b'\]: expected the name of a tensor of rank 0"),
        "none": (None, r"out\[0\]\['none'\]: expected an array, found nothing"),
        "a": (memory[4:], r"found some in out\[1\]\['a'\] and out\[0\]\['a'\]"),
    }.items():
        array, text = problem
        first = {**outs[0], change: array} if array is not None else {"a": outs[0]["a"]}
        with pytest.raises(ValueError, match=text):
            MultiShardLoader().load_all_shards(prefix, out=[first, {**outs[1], "a": memory[:5]}])
    assert (memory == 77).all()


@pytest.mark.parametrize("n_outs", [0, 1, 3])
def test_as_many_as_there_are_ranks(prefix: Path, n_outs: int) -> None:
    text = f"out: expected arrays of 2 ranks, found those of {n_outs}"
    with pytest.raises(ValueError, match=text):
        MultiShardLoader().load_all_shards(prefix, out=[like(RANKS[0])] * n_outs)


def test_memory_within_another_s_that_ends_later(tmp_path: Path) -> None:
    """Not only that of two who follow each other."""
    arrays = {"x": np.zeros(9), "y": np.zeros(1), "z": np.zeros(1)}
    prefix, memory = saved(tmp_path / "m", [arrays]), np.ones(9)
    out = {"x": memory, "y": memory[2:3], "z": memory[7:8]}
    for name in "yz":
        with pytest.raises(ValueError, match="found some in out"):
            MultiShardLoader().load_shard(prefix, 0, out={**out, name: np.zeros(1)})
    assert memory.all()


@pytest.mark.parametrize("harm", ["torn", "flipped", "gone"])
@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_not_as_it_was_saved_is_an_error(prefix: Path, harm: str, rank: int) -> None:
    path = files.shard_path(prefix, rank)
    {
        "torn": lambda: os.truncate(path, path.stat().st_size - 9),
        "flipped": lambda: files.flip(path),
        "gone": path.unlink,
    }[harm]()
    loader, outs = MultiShardLoader(workers=1), [like(arrays) for arrays in RANKS]
    with pytest.raises(CheckpointError):
        loader.load_all_shards(prefix, out=outs)
    with pytest.raises(CheckpointError):
        loader.load_shard(prefix, rank, out=like(RANKS[rank]))
    found = loader.load_shard(prefix, 1 - rank, out=outs[1 - rank])
    assert files.same(found, RANKS[1 - rank])
