"""Whatever may take long tells how far it is, if it is asked to."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shardproof
from shardproof import fetching, receipts

Told = list[tuple[int, int]]


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    prefix = f"{tmp_path}/step_1/model"
    for rank in range(3):
        shardproof.MultiShardSaver().save_shard(prefix, rank, {f"t{rank}": np.arange(4)})
    shardproof.MultiShardSaver().save_metadata(prefix, world_size=3, step=1)
    return prefix


def verified(tmp_path: Path, prefix: str, progress: Callable) -> None:
    assert shardproof.ShardFileVerifier().verify_checkpoint(prefix, progress=progress).ok


def adopted(tmp_path: Path, prefix: str, progress: Callable) -> None:
    (tmp_path / "shards").mkdir()
    for name in "abc":
        (tmp_path / "shards" / name).write_text(name)
    assert fetching.adopt(tmp_path / "shards", progress=progress).n_files == 3


def judged(tmp_path: Path, prefix: str, progress: Callable) -> None:
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_text(name)
    run = receipts.open_run(tmp_path / "runs", datasets=["c"])
    plan = receipts.make_plan("c", receipts.input_files(tmp_path / "in"), n_shards=3)
    assert len(run.store(plan).verdicts(progress=progress)) == 3


@pytest.mark.parametrize("work", [verified, adopted, judged])
def test_a_function_is_told(work, tmp_path: Path, prefix: str) -> None:
    told: Told = []
    work(tmp_path, prefix, lambda *so_far: told.append(so_far))
    assert told[-1] == (3, 3)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_a_repair_tells_of_its_checks_and_of_its_fetches(make_shards_dir, tmp_path_factory) -> None:
    whole = make_shards_dir(3)
    broken = Path(shutil.copytree(whole, tmp_path_factory.mktemp("broken") / "dir"))
    (broken / "acts000001.bin").unlink()
    told: Told = []
    shardproof.repair(broken, str(whole), progress=lambda *so_far: told.append(so_far))
    assert told == [(3, 3), (1, 1), (3, 3)]
