"""Two attempts save one prefix at once: one checkpoint of one attempt, and the other is told."""

import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from shardproof.checkpoint import MultiShardLoader, MultiShardSaver, ShardFileVerifier, prune
from shardproof.errors import CheckpointError
from tests.attacks.tally import Tally
from tests.helpers import checkpoint_files as files
from tests.helpers.interleaving import Act, in_turns, playing, turns_of
from tests.helpers.killing import skip_where_not_permitted

N_RACES = 450
"""In each way in which two may save."""

N_SAMPLED = 6
WORLD_SIZE = 2
N_CALLS = 140
"""About as many as one save makes."""

SAVED, REFUSED = "saved", "refused"

Save = Callable[[Path, int], None]
Removal = Callable[[Path], str]


@pytest.fixture(autouse=True)
def _races(tmp_path, monkeypatch) -> None:
    """Processes can be traced; nobody waits for disks, which no race is about."""
    skip_where_not_permitted()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    save(tmp_path / "warm" / "model", 0)  # what is imported late is by now


class Race(NamedTuple):
    seed: int
    turns: Sequence[tuple[int, int]]


def races(n_players: int) -> list[Race]:
    """Half of them with many turns; in the others one saves within the other, or nearly."""
    found = [Race(seed, turns_of(seed, n_players, N_CALLS)) for seed in range(N_RACES // 2)]
    for seed in range(N_RACES // 2, N_RACES):
        luck = random.Random(seed)
        one, other = luck.sample(range(n_players), 2)
        turns = [(one, luck.randrange(N_CALLS)), (other, luck.randrange(N_CALLS)), (one, 10**6)]
        found.append(Race(seed, turns))
    return found


def arrays_of(attempt: int, rank: int) -> dict[str, np.ndarray]:
    return {"w": np.full((3, 5), 10.0 * attempt + rank)}


def save(prefix: Path, attempt: int, step: int | None = None, *, overwrite: bool = False) -> None:
    saver = saver_of_all_ranks(prefix, attempt, step=step, overwrite=overwrite)
    saver.save_metadata(prefix, world_size=WORLD_SIZE, step=step or 0)


def saver_of_all_ranks(prefix: Path, attempt: int, **how: Any) -> MultiShardSaver:
    saver = MultiShardSaver()
    for rank in range(WORLD_SIZE):
        saver.save_shard(prefix, rank, arrays_of(attempt, rank), **how)
    return saver


def save_by_several(prefix: Path, attempt: int) -> None:
    for rank in range(WORLD_SIZE):
        saver_of(attempt).save_shard(prefix, rank, arrays_of(attempt, rank))
    saver_of(attempt).save_metadata(prefix, world_size=WORLD_SIZE)


def save_carelessly(prefix: Path, attempt: int) -> None:
    """Save as it was done before: look once, and rename over whatever is there."""
    if files.metadata_path(prefix).exists():
        raise CheckpointError("a checkpoint exists already", path=str(prefix))
    made = prefix.parent / f".{attempt}" / prefix.name
    if not made.parent.exists():
        save(made, attempt)
    shards = [files.shard_path(made, rank) for rank in range(WORLD_SIZE)]
    for path in [*shards, files.metadata_path(made)]:
        os.replace(path, prefix.parent / path.name)


def telling(act: Callable[..., object], *args: Any, **keywords: Any) -> Act:
    def tell() -> str:
        try:
            act(*args, **keywords)
        except CheckpointError as error:
            return f"{REFUSED}: {error}"
        return SAVED

    return tell


def emptied(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def whole_of(prefix: Path) -> int | None:
    """Return whose the checkpoint is, found by bytes; None if it is nobody's alone."""
    if not files.is_whole(prefix):
        return None
    found = files.read(prefix)
    for attempt in range(2):
        expected = [files.tensors_of(arrays_of(attempt, rank)) for rank in range(WORLD_SIZE)]
        if found == expected:
            return attempt
    return None


def judge(tally: Tally, prefix: Path, said: Sequence[str], case: object) -> None:
    tally.count()
    saved = [attempt for attempt in range(2) if said[attempt] == SAVED]
    if not files.metadata_path(prefix).exists():
        if saved:
            tally.harm("lost", f"{case}: attempt {saved} was told that it saved")
        return
    whole = whole_of(prefix)
    if whole is None:
        tally.harm("lie" if files.is_whole(prefix) else "torn", f"{case}: mixed, or broken: {said}")
    elif saved != [whole]:
        tally.harm("lost" if saved else "lie", f"{case}: of attempt {whole}, told: {said}")
    elif not _agrees(prefix, whole):
        tally.harm("wrong class", f"{case}: the code doesn't say that it is whole")


def _agrees(prefix: Path, attempt: int) -> bool:
    loaded = MultiShardLoader().load_all_shards(prefix)
    expected = [arrays_of(attempt, rank) for rank in range(WORLD_SIZE)]
    return ShardFileVerifier().verify_checkpoint(prefix).is_valid and all(
        np.array_equal(found["w"], arrays["w"])
        for found, arrays in zip(loaded, expected, strict=True)
    )


def run(tally: Tally, path: Path, save: Save) -> None:
    for race in tally.each(races(2), N_SAMPLED):
        prefix = emptied(path / "x") / "model"
        acts = [telling(save, prefix, attempt) for attempt in range(2)]
        judge(tally, prefix, in_turns(acts, race.turns), race)


@pytest.mark.attack("two savers of one prefix")
@pytest.mark.parametrize("way", [save, save_by_several])
def test_two_processes_that_save_make_one_checkpoint(tally, tmp_path, way) -> None:
    run(tally, tmp_path, way)


def saved_by_ranks(prefix: Path, turns: Sequence[tuple[int, int]], seed: int) -> list[str]:
    pairs = [*itertools.product(range(2), range(WORLD_SIZE))]
    saving = [
        telling(saver_of(attempt).save_shard, prefix, rank, arrays_of(attempt, rank))
        for attempt, rank in pairs
    ]
    shards = in_turns(saving, turns)
    complete = [a for a in range(2) if {shards[2 * a], shards[2 * a + 1]} == {SAVED}]
    sealing = [
        telling(saver_of(attempt).save_metadata, prefix, world_size=WORLD_SIZE)
        for attempt in complete
    ]
    with playing(sealing) as players:
        for number, n_calls in turns_of(seed, len(players), N_CALLS) if players else ():
            players[number].go_on(n_calls)
        for player in players:
            player.go_on()
        said = dict(zip(complete, [player.said for player in players], strict=True))
    return [said.get(attempt, REFUSED) for attempt in range(2)]


def saver_of(attempt: int) -> MultiShardSaver:
    return MultiShardSaver(attempt=f"job {attempt}")


@pytest.mark.attack("two savers of one prefix")
def test_two_attempts_of_two_processes_make_one_checkpoint(tally: Tally, tmp_path: Path) -> None:
    for race in tally.each(races(4), N_SAMPLED):
        prefix = emptied(tmp_path / "x") / "model"
        judge(tally, prefix, saved_by_ranks(prefix, race.turns, race.seed), race)


def plans() -> Iterator[list[tuple[int, int]]]:
    """One seals at each of its calls what the other saves over, and the other way round."""
    for first, n_calls in itertools.product(range(2), range(80)):
        for others in (60, 10**6):
            yield [(first, n_calls), (1 - first, others), (first, 10**6)]


@pytest.mark.attack("two savers of one prefix")
def test_one_saves_while_the_other_seals(tally: Tally, tmp_path: Path) -> None:
    for turns in tally.each([*plans()], N_SAMPLED):
        prefix = emptied(tmp_path / "x") / "model"
        sealing = saver_of_all_ranks(prefix, 0).save_metadata
        acts = [telling(sealing, prefix, world_size=WORLD_SIZE), telling(save, prefix, 1)]
        judge(tally, prefix, in_turns(acts, turns), turns)


NEWEST = 50
N_CALLS_OF_A_REMOVAL = 240

Removed = tuple[bool, Sequence[tuple[int, int]]]
"""Whether one saves over what is there; and the turns of it (0), and of what removes (1)."""


def prune_all_but_one(path: Path) -> str:
    return "removed " + ", ".join(prune(path, keep=1))


def prune_carelessly(path: Path) -> str:
    """Remove as it was done before: look once, and rename and remove whatever is there."""
    prefix = path / "slot0" / "model"
    if ShardFileVerifier().verify_checkpoint(path / "slot1" / "model").is_valid:
        os.replace(files.metadata_path(prefix), f"{files.metadata_path(prefix)}.pruned")
        for rank in range(WORLD_SIZE):
            files.shard_path(prefix, rank).unlink()
    return ""


def within_a_removal() -> Iterator[Removed]:
    for overwrite in (True, False):
        for n_calls in range(N_CALLS_OF_A_REMOVAL):
            yield overwrite, [(1, n_calls), (0, 10**6)]


def beside_a_removal() -> Iterator[Removed]:
    """A removal, or half of it, at each call of who saves; and turns of both."""
    for overwrite in (True, False):
        for n_calls in range(0, N_CALLS, 2):
            for others in (N_CALLS_OF_A_REMOVAL // 2, 10**6):
                yield overwrite, [(0, n_calls), (1, others), (0, 10**6)]
        for seed in range(N_RACES // 2):
            yield overwrite, turns_of(seed, 2, N_CALLS_OF_A_REMOVAL)


def removed_meanwhile(tally, path, overwrite, turns, remove) -> None:
    emptied(path)
    old, kept = path / "slot0" / "model", path / "slot1" / "model"
    for step, prefix in ((10, old), (30, kept)):
        save(prefix, 0, step)
    acts = [telling(save, old, 1, NEWEST, overwrite=overwrite), lambda: remove(path)]
    said = in_turns(acts, turns)
    judge_removal(tally, old, kept, said, (overwrite, turns))


def judge_removal(tally: Tally, old: Path, kept: Path, said: Sequence[str], case: object) -> None:
    tally.count()
    is_there = files.metadata_path(old).exists()
    if is_there and not files.is_whole(old):
        tally.harm("torn", f"{case}: {said}")
    elif said[0] == SAVED and not (is_there and files.metadata_of(old)["step"] == NEWEST):
        tally.harm("lost", f"{case}: it was told that it saved")
    elif said[0] == SAVED and whole_of(old) != 1:
        tally.harm("lie", f"{case}: it is not what was saved")
    elif said[0] != SAVED and whole_of(kept) != 0:
        tally.harm("lost", f"{case}: nothing was saved, and the newest is gone")
    elif left := [*old.parent.glob(".shardproof*")]:
        tally.harm("leftover", f"{case}: {left}")


@pytest.mark.attack("two savers of one prefix")
@pytest.mark.parametrize("plans", [within_a_removal, beside_a_removal])
def test_one_saves_where_another_removes(tally: Tally, tmp_path: Path, plans) -> None:
    for overwrite, turns in tally.each([*plans()], 2 * N_SAMPLED):
        removed_meanwhile(tally, tmp_path / "x", overwrite, turns, prune_all_but_one)


@pytest.mark.control("torn")
def test_savers_that_look_once_are_caught(tmp_path: Path, tally: Tally) -> None:
    for race in tally.each(races(2), 20):
        prefix = emptied(tmp_path / "x") / "model"
        for attempt in range(2):
            save(prefix.parent / f".{attempt}" / prefix.name, attempt)
        acts = [telling(save_carelessly, prefix, attempt) for attempt in range(2)]
        short = [(player, max(1, n_calls // 12)) for player, n_calls in race.turns]
        judge(tally, prefix, in_turns(acts, short), race)


@pytest.mark.control("lost")
def test_a_removal_that_looks_once_is_caught(tmp_path: Path, tally: Tally) -> None:
    for n_calls in tally.each(range(0, 60, 6), 10):
        turns = [(1, n_calls), (0, 10**6)]
        removed_meanwhile(tally, tmp_path / "x", True, turns, prune_carelessly)
