"""What all ranks do together grows with the number of ranks, not with its square."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof.checkpoint import (
    MultiShardLoader,
    MultiShardSaver,
    ShardFileVerifier,
    from_safetensors,
    latest_checkpoint,
    prune,
    to_safetensors,
    unfinished_steps,
)

FEW, MANY = 5, 20


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


Seen = Counter[str]
"""How many names the listings of directories told, and how many calls looked at one file."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    counts = Seen()
    scandir, listdir = os.scandir, os.listdir

    @contextlib.contextmanager
    def count_scandir(*arguments: Any) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scandir(*arguments) as entries:
            found = [*entries]
        counts["listed"] += len(found)
        yield iter(found)

    def count_listdir(*arguments: Any) -> list[str]:
        found = listdir(*arguments)
        counts["listed"] += len(found)
        return found

    def counting(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            counts[name] += 1
            return real(*arguments, **keywords)

        return call

    monkeypatch.setattr(os, "scandir", count_scandir)
    monkeypatch.setattr(os, "listdir", count_listdir)
    for name in ("open", "stat", "lstat", "preadv", "pread", "rename", "unlink", "mkdir", "rmdir"):
        monkeypatch.setattr(os, name, counting(name))
    return counts


def save_shards(prefix: Path, n_ranks: int, **keywords: Any) -> None:
    saver = MultiShardSaver(sync=False)
    for rank in range(n_ranks):
        saver.save_shard(prefix, rank, {f"w{rank}": np.zeros(1)}, **keywords)


def save(prefix: Path, n_ranks: int, step: int = 0, **keywords: Any) -> None:
    save_shards(prefix, n_ranks, **keywords)
    MultiShardSaver(sync=False).save_metadata(prefix, world_size=n_ranks, step=step)


def save_steps(path: Path, n_steps: int) -> None:
    for step in range(n_steps):
        save(path / f"step_{step}", 1, step)


def half_removed(path: Path, n_steps: int) -> None:
    save_steps(path, n_steps)
    for step in range(n_steps - 1):
        os.rename(path / f"step_{step}.metadata.json", path / f"step_{step}.metadata.json.pruned")


def unfinished(path: Path, n_steps: int) -> None:
    for step in range(n_steps):
        save_shards(path / f"step_{step}", 1)


LOADER = MultiShardLoader(workers=1)


def save_again(path: Path) -> None:
    n_ranks = len([*path.glob("*.shard")])
    save(path / "x", n_ranks, overwrite=True)


def save_beside(path: Path) -> None:
    for rank in range(len([*path.glob("*.shard")])):
        with pytest.raises(Exception, match="already"):
            MultiShardSaver(sync=False).save_shard(path / "x", rank, {"w": np.zeros(1)})


RANKS: dict[str, Callable[[Path], object]] = {
    "load_all_shards": lambda path: LOADER.load_all_shards(path / "x"),
    "load_tensors": lambda path: LOADER.load_tensors(path / "x"),
    "overwrite": save_again,
    "refused": save_beside,
    "verify": lambda path: ShardFileVerifier().verify_checkpoint(path / "x"),
    "latest": latest_checkpoint,
    "to_safetensors": lambda path: to_safetensors(path / "x", path.with_name(f"{path.name}-to")),
}
STEPS: dict[str, Callable[[Path], object]] = {
    "latest": latest_checkpoint,
    "prune": lambda path: prune(path, keep=1),
    "unfinished": unfinished_steps,
    "save beside": lambda path: save(path / "another", 1),
}


def grows(
    seen: Seen, made: Callable[[Path, int], object], call: Callable[[Path], object], at: Path
) -> float:
    """By what four times as much takes four times as many looks: 1 where it is linear."""
    totals = []
    for n in (FEW, MANY):
        path = at / str(n)
        made(path, n)
        seen.clear()
        call(path)
        totals.append(seen.total())
    assert totals[0] > 0
    return totals[1] / totals[0] / (MANY / FEW)


def test_a_rank_lists_no_shard_of_another(tmp_path: Path, seen: Seen) -> None:
    prefix = tmp_path / "x"
    save_shards(prefix, MANY)
    for overwrite in (False, True):
        seen.clear()
        MultiShardSaver(sync=False).save_shard(prefix, 3, {"w": np.zeros(1)}, overwrite=overwrite)
        assert seen["listed"] == 0


def test_all_ranks(tmp_path: Path, seen: Seen) -> None:
    def save_all(path: Path) -> None:
        save(path / "x", int(path.name))

    assert grows(seen, lambda path, n: path.mkdir(), save_all, tmp_path) < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("what", RANKS)
def test_ranks(tmp_path: Path, seen: Seen, what: str) -> None:
    assert grows(seen, lambda path, n: save(path / "x", n), RANKS[what], tmp_path) < 1.1


@pytest.mark.slow
@pytest.mark.parametrize("what", STEPS)
@pytest.mark.parametrize("state", [save_steps, half_removed, unfinished])
def test_steps(tmp_path: Path, seen: Seen, state: Callable[[Path, int], None], what: str) -> None:
    assert grows(seen, state, STEPS[what], tmp_path) < 1.1


def test_from_safetensors(tmp_path: Path, seen: Seen) -> None:
    def make(path: Path, n: int) -> None:
        save(tmp_path / f"{n}-from" / "x", n)
        to_safetensors(tmp_path / f"{n}-from" / "x", path)

    def convert(path: Path) -> None:
        from_safetensors(path, tmp_path / f"{path.name}-again" / "x")

    assert grows(seen, make, convert, tmp_path) < 1.1
