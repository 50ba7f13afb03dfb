"""Ranks are processes: they save at once, one speaks for all, and some die half-way."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shardproof.checkpoint import (
    MultiShardLoader,
    MultiShardSaver,
    ShardFileVerifier,
    latest_checkpoint,
)
from shardproof.errors import CheckpointError
from tests.helpers import checkpoint_files as files

pytestmark = pytest.mark.once

PATIENCE = 60
"""Seconds after which a child ends itself, that the test ends where the code hangs."""

WORLD_SIZE = 4

RANK = f"""
import os, signal, sys
from collections.abc import Mapping
import numpy as np
from shardproof.checkpoint import MultiShardSaver

signal.alarm({PATIENCE})
prefix, rank, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]

class Arrays(Mapping):
    def __getitem__(self, name):
        if name == "w1" and what.startswith("die"):
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((1000, rank + 1), float(name[1:]) + 10 * rank)

    def __iter__(self):
        return iter(["w0", "w1"])

    def __len__(self):
        return 2

saver = MultiShardSaver()
print("ready", flush=True)
sys.stdin.readline()
saver.save_shard(prefix, rank, Arrays(), overwrite=what.endswith("again"))
if what == "speak":
    print("saved", flush=True)
    sys.stdin.readline()
    saver.save_metadata(prefix, world_size={WORLD_SIZE}, step=7)
"""


def arrays_of(rank: int) -> dict[str, np.ndarray]:
    return {f"w{n}": np.full((1000, rank + 1), n + 10.0 * rank) for n in range(2)}


class Rank:
    """A process that is ready to save.

    Args:
        prefix: Of the checkpoint.
        rank: Its number.
        what: "save"; "die" half-way; "speak" for all when it is told to; "die again" over what
            is there.
    """

    def __init__(self, prefix: Path, rank: int, what: str = "save") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(prefix), str(rank), what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def has_saved(self) -> bool:
        assert self.process.stdout
        return self.process.stdout.readline() == "saved\n"

    def code(self) -> int:
        _, errors = self.process.communicate()
        assert errors == ""
        return self.process.returncode


def run(prefix: Path, whats: Sequence[str]) -> list[int]:
    """Let all ranks save at once; return their exit codes."""
    ranks = [Rank(prefix, rank, what) for rank, what in enumerate(whats)]
    for rank in ranks:
        rank.go()
    return [rank.code() for rank in ranks]


@pytest.fixture
def prefix(tmp_path) -> Path:
    (tmp_path / "ckpt").mkdir()
    return tmp_path / "ckpt" / "step_7"


def assert_whole(prefix: Path) -> None:
    expected = [arrays_of(rank) for rank in range(WORLD_SIZE)]
    assert files.read(prefix) == [files.tensors_of(arrays) for arrays in expected]
    assert ShardFileVerifier().verify_checkpoint(str(prefix)).is_valid
    for found, arrays in zip(
        MultiShardLoader().load_all_shards(str(prefix)), expected, strict=True
    ):
        assert all((found[name] == array).all() for name, array in arrays.items())


def test_four_processes(prefix: Path) -> None:
    ranks = [Rank(prefix, rank, "save" if rank else "speak") for rank in range(WORLD_SIZE)]
    for rank in ranks:
        rank.go()
    assert [rank.code() for rank in ranks[1:]] == [0, 0, 0]
    assert ranks[0].has_saved()
    assert not files.metadata_path(prefix).exists()
    ranks[0].go()
    assert ranks[0].code() == 0
    assert_whole(prefix)
    assert sorted(path.name for path in prefix.parent.iterdir()) == sorted(
        [f"step_7_shard_{rank}.shard" for rank in range(WORLD_SIZE)] + ["step_7.metadata.json"]
    )


@pytest.mark.parametrize("dead", range(WORLD_SIZE))
def test_one_that_dies_half_way(prefix: Path, dead: int) -> None:
    codes = run(prefix, ["die" if rank == dead else "save" for rank in range(WORLD_SIZE)])
    assert codes == [-signal.SIGKILL if rank == dead else 0 for rank in range(WORLD_SIZE)]
    assert not files.shard_path(prefix, dead).exists()
    with pytest.raises(CheckpointError, match=rf"(?i)rank.*\b{dead}\b") as caught:
        MultiShardSaver().save_metadata(str(prefix), world_size=WORLD_SIZE, step=7)
    assert os.path.isabs(caught.value.path)
    assert not files.metadata_path(prefix).exists()

    last = Rank(prefix, dead)
    last.go()
    assert last.code() == 0
    MultiShardSaver().save_metadata(str(prefix), world_size=WORLD_SIZE, step=7)
    assert_whole(prefix)


def test_one_that_dies_while_it_saves_again(prefix: Path) -> None:
    """There is the old checkpoint or none, and the next attempt makes a whole one."""
    assert run(prefix, ["save"] * WORLD_SIZE) == [0] * WORLD_SIZE
    MultiShardSaver().save_metadata(str(prefix), world_size=WORLD_SIZE, step=7)
    dying = Rank(prefix, 2, "die again")
    dying.go()
    assert dying.code() == -signal.SIGKILL
    assert latest_checkpoint(prefix.parent) == (str(prefix) if files.is_whole(prefix) else None)

    saver = MultiShardSaver()
    for rank in range(WORLD_SIZE):
        saver.save_shard(str(prefix), rank, arrays_of(rank), overwrite=True)
    saver.save_metadata(str(prefix), world_size=WORLD_SIZE, step=7)
    assert_whole(prefix)
