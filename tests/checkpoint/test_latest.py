"""The newest whole checkpoint is found whatever is broken; the last whole one is not removed."""

import errno
import itertools
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from shardproof.checkpoint import (
    MultiShardSaver,
    latest_checkpoint,
    prune,
    unfinished_steps,
)
from shardproof.checkpoint.read import read_manifest
from shardproof.checkpoint.save import _commit
from shardproof.errors import ManifestError
from shardproof.testing.faults import FileSystemFaults
from tests.helpers import checkpoint_files as files

DAMAGES = ["missing", "torn", "zero tail"]
SEEN_BY = {"present": DAMAGES[:1], "complete": DAMAGES[:2], "valid": DAMAGES}
"""Which damage a level sees."""


@pytest.fixture
def as_an_older_saver(monkeypatch) -> None:
    """Let names be saved that are refused by now: what has one is read, and removed, as before."""
    monkeypatch.setattr(_commit, "refusals", lambda _: [])


def save(prefix: Path, step: int, world_size: int = 4, seed: int | None = None) -> None:
    """Save tiny tensors, whose sizes don't depend on the step."""
    saver = MultiShardSaver(sync=False)
    prefix.parent.mkdir(exist_ok=True)
    luck = np.random.default_rng(step if seed is None else seed)
    for rank in range(world_size):
        saver.save_shard(str(prefix), rank, {"w": luck.integers(1, 100, 8, np.int8)})
    saver.save_metadata(str(prefix), world_size=world_size, step=step)


def damaged(path: Path, damage: str) -> None:
    """Harm a file, of which there may be other links."""
    data = path.read_bytes()
    path.unlink()
    if damage == "torn":
        path.write_bytes(data[:-3])
    elif damage == "zero tail":
        path.write_bytes(data[:-3] + bytes(3))


class Shards:
    """All shards of some checkpoints, each of which may be damaged and healed, by its number.

    Args:
        tmp_path: Where the other version of each is.
        prefixes: The checkpoints, oldest first.
        world_size: How many shards each has.
    """

    def __init__(self, tmp_path: Path, prefixes: list[Path], world_size: int) -> None:
        self.prefixes, self.world_size = prefixes, world_size
        pairs = list(itertools.product(range(len(prefixes)), range(world_size)))
        self.paths = [files.shard_path(prefixes[step], rank) for step, rank in pairs]
        self.damages = [DAMAGES[(step + rank) % len(DAMAGES)] for step, rank in pairs]
        self.others = [tmp_path / f"other_{number}" for number in range(len(pairs))]
        self.is_damaged = [False] * len(pairs)
        for path, other, damage in zip(self.paths, self.others, self.damages, strict=True):
            shutil.copyfile(path, other)
            damaged(other, damage)

    def toggle(self, number: int) -> None:
        """Damage a shard, or heal it: what is there and what is kept elsewhere trade places."""
        path, other = self.paths[number], self.others[number]
        aside = other.with_name("aside")
        for source, target in ((path, aside), (other, path), (aside, other)):
            if source.exists():
                os.rename(source, target)
        self.is_damaged[number] ^= True

    def subsets(self) -> Iterator[None]:
        """Go through all subsets of damaged shards, one change after the other (a Gray code)."""
        yield
        for number in range(1, 2 ** len(self.paths)):
            self.toggle((number & -number).bit_length() - 1)
            yield

    def whole(self, level: str) -> list[Path]:
        """The checkpoints in which a level sees no damage: the oracle."""
        bad = [
            is_damaged and damage in SEEN_BY[level]
            for is_damaged, damage in zip(self.is_damaged, self.damages, strict=True)
        ]
        n = self.world_size
        return [p for i, p in enumerate(self.prefixes) if not any(bad[i * n : (i + 1) * n])]


def prefixes_in(path: Path, layout: str, n_steps: int) -> list[Path]:
    path.mkdir(exist_ok=True)
    return [path / layout.format(step) for step in range(1, n_steps + 1)]


LAYOUTS = ["step_{}", "step_{}/model"]


def states(tmp_path: Path, layout: str, world_size: int, level: str) -> tuple[int, int]:
    """Look in each state of three steps; return how many there are, and have no whole one."""
    prefixes = prefixes_in(tmp_path / "x", layout, 3)
    for step, prefix in enumerate(prefixes, 1):
        save(prefix, step, world_size)
    shards = Shards(tmp_path, prefixes, world_size)
    n_states, n_none = 0, 0
    for _ in shards.subsets():
        n_states += 1
        whole = shards.whole(level)
        expected = str(whole[-1]) if whole else None
        assert latest_checkpoint(tmp_path / "x", level=level) == expected, shards.is_damaged
        n_none += expected is None
    return n_states, n_none


@pytest.mark.slow
def test_every_subset_of_damaged_shards(tmp_path, stride) -> None:
    n_ranks = 4 if stride == 1 else 3
    n_states, n_broken = 2 ** (3 * n_ranks), (2**n_ranks - 1) ** 3
    assert states(tmp_path, "step_{}", n_ranks, "valid") == (n_states, n_broken)


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("level", ["present", "complete", "valid"])
def test_every_subset_of_a_smaller_tree(tmp_path, layout: str, level: str) -> None:
    n_states, n_none = states(tmp_path, layout, 2, level)
    assert n_states == 64
    assert n_none == {"present": 0, "complete": 12, "valid": 27}[level]


def test_the_oracle_is_right(tmp_path) -> None:
    """What it calls whole at the highest level is what a reader of the format does."""
    prefixes = prefixes_in(tmp_path / "x", "step_{}", 2)
    for step, prefix in enumerate(prefixes, 1):
        save(prefix, step, 2)
    shards = Shards(tmp_path, prefixes, 2)
    for _ in shards.subsets():
        assert [prefix for prefix in prefixes if files.is_whole(prefix)] == shards.whole("valid")


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_prune_leaves_the_last_whole_ones(tmp_path, layout: str, keep: int) -> None:
    """In every state of a tree."""
    template = tmp_path / "template"
    for step, prefix in enumerate(prefixes_in(template, layout, 3), 1):
        save(prefix, step, 2)
    path = tmp_path / "x"
    prefixes = [path / layout.format(step) for step in (1, 2, 3)]
    pairs = list(itertools.product(prefixes, range(2)))
    for bad in itertools.product([False, True], repeat=len(pairs)):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template, path, copy_function=os.link)
        for number, ((prefix, rank), is_bad) in enumerate(zip(pairs, bad, strict=True)):
            if is_bad:
                damaged(files.shard_path(prefix, rank), DAMAGES[number % 3])
        whole = [prefix for prefix in prefixes if files.is_whole(prefix)]
        assert len(whole) == sum(not any(bad[i : i + 2]) for i in (0, 2, 4))

        removed = prune(path, keep=keep)

        kept = [prefix for prefix in prefixes if files.is_whole(prefix)]
        assert kept == whole[-keep:], bad
        assert latest_checkpoint(path) == (str(whole[-1]) if whole else None)
        gone = [
            str(prefix) for prefix in prefixes if not list(prefix.parent.glob(f"{prefix.name}*"))
        ]
        assert sorted(removed) == sorted(gone)
        assert {str(prefix) for prefix in whole[:-keep]} <= set(removed)
        if whole:
            newer = prefixes[prefixes.index(whole[-1]) :]
            assert not {str(prefix) for prefix in newer} & set(removed)
        assert prune(path, keep=keep) == []


class TestLatest:
    @pytest.fixture
    def path(self, tmp_path) -> Path:
        (tmp_path / "x").mkdir()
        return tmp_path / "x"

    def test_nothing(self, path: Path) -> None:
        assert latest_checkpoint(path) is None
        assert prune(path) == []
        (path / "notes.txt").write_text("x")
        (path / "sub").mkdir()
        assert latest_checkpoint(path) is None
        assert prune(path, keep=1) == []
        assert sorted(p.name for p in path.iterdir()) == ["notes.txt", "sub"]

    @pytest.mark.parametrize(
        ("earlier", "later"),
        [("00Z", "00.5Z"), ("00.45Z", "00.5Z"), ("00.5Z", "00.51Z"), ("00.9Z", "01Z")],
    )
    def test_times_are_moments(self, path: Path, earlier: str, later: str) -> None:
        saver = MultiShardSaver()
        for name, seconds in (("a", earlier), ("b", later), ("c", earlier)):
            saver.save_shard(path / name, 0, {"b": np.arange(3)})
            timestamp = f"2026-11-21T20:00:{seconds}"
            saver.save_metadata(path / name, world_size=1, step=5, timestamp=timestamp)
        assert latest_checkpoint(path) == str(path / "b")

    def test_the_metadata_knows_the_step(self, path: Path) -> None:
        """Names and times of files are anybody's."""
        save(path / "step_1", 9)
        save(path / "step_9", 1)
        assert latest_checkpoint(path) == str(path / "step_1")
        os.utime(files.metadata_path(path / "step_1"), (0, 0))
        assert latest_checkpoint(path) == str(path / "step_1")

    @pytest.mark.parametrize("rank", range(4))
    def test_a_shard_of_another_step(self, path: Path, rank: int) -> None:
        """As large, and whole in itself: somebody copied it."""
        for step in (1, 2):
            save(path / f"step_{step}", step)
        shutil.copyfile(
            files.shard_path(path / "step_1", rank), files.shard_path(path / "step_2", rank)
        )
        assert latest_checkpoint(path) == str(path / "step_1")
        assert latest_checkpoint(path, level="valid") == str(path / "step_1")

    def test_shards_without_metadata(self, path: Path) -> None:
        save(path / "step_1", 1)
        saver = MultiShardSaver()
        for rank in range(4):
            saver.save_shard(str(path / "step_2"), rank, {"w": np.ones(3)}, step=2)
        assert latest_checkpoint(path) == str(path / "step_1")
        assert prune(path, keep=1) == []
        assert files.is_whole(path / "step_1")
        assert files.shard_path(path / "step_2", 3).exists()  # somebody may be at it
        saver.save_metadata(str(path / "step_2"), world_size=4, step=2)
        assert latest_checkpoint(path) == str(path / "step_2")

    @pytest.mark.parametrize(
        "name",
        ["a b", "ä", "%s", "[x]", "a*", "x_shard_0", "x.metadata.json", "-x", ".x", "a\nb", "\\"],
    )
    @pytest.mark.usefixtures("as_an_older_saver")
    def test_names_need_not_be_plain(self, path: Path, name: str) -> None:
        for step in (1, 2):
            save(path / f"{name}{step}", step, 2)
        assert latest_checkpoint(path) == str(path / f"{name}2")
        assert prune(path, keep=1) == [str(path / f"{name}1")]
        assert files.is_whole(path / f"{name}2")
        assert len(list(path.iterdir())) == 3

    def test_a_file_in_its_place(self, path: Path) -> None:
        (path / "file").write_text("x")
        with pytest.raises(NotADirectoryError, match="file"):
            latest_checkpoint(path / "file")

    @pytest.mark.parametrize("keep", [0, -1])
    def test_to_keep_none(self, path: Path, keep: int) -> None:
        save(path / "step_1", 1)
        with pytest.raises(ValueError, match="keep"):
            prune(path, keep=keep)
        assert files.is_whole(path / "step_1")

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_reasons_are_logged(self, path: Path, caplog, damage: str) -> None:
        for step in (1, 2, 3):
            save(path / f"step_{step}", step)
        damaged(files.shard_path(path / "step_2", 1), damage)
        damaged(files.shard_path(path / "step_3", 2), damage)
        caplog.set_level(logging.INFO, "shardproof")
        assert latest_checkpoint(path) == str(path / "step_1")
        for name in ("step_2_shard_1.shard", "step_3_shard_2.shard"):
            assert any(name in record.getMessage() for record in caplog.records), caplog.text


@pytest.mark.usefixtures("as_an_older_saver")
def test_a_name_with_a_line_end(tmp_path: Path) -> None:
    prefix = tmp_path / "mo\ndel"
    save(prefix, 1)
    assert latest_checkpoint(tmp_path) == str(prefix)
    with pytest.raises(ManifestError, match="it has a control character"):
        read_manifest(str(tmp_path))


class TestFaults:
    """That nobody could look says nothing about a checkpoint."""

    def calls(self, path: Path, act: Callable[[], object]) -> range:
        with FileSystemFaults(path) as fs:
            act()
            return range(1, len(fs.calls) + 1)

    @pytest.mark.slow
    @pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
    @pytest.mark.parametrize("level", ["present", "complete", "valid"])
    def test_the_newest_or_an_error(self, tmp_path, number: int, level: str) -> None:
        path = tmp_path / "x"
        path.mkdir()
        for step in (1, 2):
            save(path / f"step_{step}", step, 2)

        def look() -> str | None:
            return latest_checkpoint(path, level=level)

        for nth in self.calls(path, look):
            with FileSystemFaults(path) as fs:
                fs.fail("any", number, nth=nth, times=1, optional=True)
                try:
                    found = look()
                except OSError:
                    continue
            assert found == str(path / "step_2"), nth


class TestPrune:
    def test_what_it_does_not_know_stays(self, tmp_path) -> None:
        for step in (1, 2):
            save(tmp_path / f"step_{step}" / "model", step)
            (tmp_path / f"step_{step}" / "log.txt").write_text("x")
        extra = files.shard_path(tmp_path / "step_1" / "model", 4)
        extra.write_bytes(b"of nobody")
        prune(tmp_path, keep=1)
        assert sorted(p.name for p in (tmp_path / "step_1").iterdir()) == [
            "log.txt",
            "model_shard_4.shard",
        ]

    def test_nothing_outside_is_removed(self, tmp_path) -> None:
        """Whatever the metadata of an old one says, which anybody may have written."""
        path = tmp_path / "x"
        path.mkdir()
        for step in (1, 2):
            save(path / f"step_{step}", step)
        precious = tmp_path / "precious_shard_0.shard"
        precious.write_bytes(b"x")
        said = files.metadata_of(path / "step_1")
        said["shards"][0]["file"] = "../precious_shard_0.shard"
        files.metadata_path(path / "step_1").write_bytes(files.signed(said))
        prune(path, keep=1)
        assert precious.exists()
        assert files.is_whole(path / "step_2")

        link = files.shard_path(path / "step_1", 1)
        link.unlink(missing_ok=True)
        link.symlink_to(precious)
        save(path / "step_3", 3)
        prune(path, keep=1)
        assert precious.exists()

    def test_links_to_directories(self, tmp_path) -> None:
        """A checkpoint has one name, and what lies elsewhere is not removed through a link."""
        path = tmp_path / "x"
        path.mkdir()
        for step in (1, 2, 3):
            save(path / f"step_{step}" / "model", step)
        (path / "step_2").rename(tmp_path / "elsewhere")
        (path / "step_2").symlink_to("../elsewhere")
        (path / "first").symlink_to("step_1")
        (path / "latest").symlink_to("step_3")
        found = latest_checkpoint(path)
        assert found
        assert os.path.samefile(files.metadata_path(found), path / "step_3/model.metadata.json")
        prune(path, keep=1)
        assert not files.metadata_path(path / "step_1" / "model").exists()
        assert files.is_whole(tmp_path / "elsewhere" / "model")
        assert files.is_whole(path / "step_3" / "model")


class TestUnfinished:
    """Shards and records, and no metadata: a save was killed, or still runs."""

    @pytest.fixture
    def step(self, tmp_path: Path) -> Path:
        """The first of two ranks has saved its shard; beside it there is a step that is whole."""
        save(tmp_path / "step_1" / "model", 1)
        prefix = tmp_path / "step_2" / "model"
        MultiShardSaver().save_shard(prefix, 0, {"w": np.arange(3)}, step=2)
        return prefix

    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            (-5, "0 s"),
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7199, "119 min"),
            (7200, "2 h"),
            (172799, "47 h"),
            (172800, "2 days"),
            (10**9, "11574 days"),
        ],
    )
    def test_the_log_tells_it_with_its_age(
        self, step: Path, caplog, monkeypatch, seconds: int, words: str
    ) -> None:
        for path in step.parent.iterdir():
            os.utime(path, (1000, 1000))
        monkeypatch.setattr("shardproof.checkpoint.storage._location.clock", lambda: 1000 + seconds)
        assert latest_checkpoint(step.parent.parent) == f"{step.parent.parent}/step_1/model"
        (said,) = caplog.messages
        assert said == (
            f"unfinished step '{step}': 1 shard file, last written {words} ago; "
            "its save was killed or still runs"
        )

    def test_the_youngest_file_tells_the_age(self, step: Path) -> None:
        record = files.shard_path(step, 0).with_suffix(".tensors.json")
        os.utime(files.shard_path(step, 0), (1000, 1000))
        (found,) = unfinished_steps(step)
        assert found.age == pytest.approx(time.time() - record.stat().st_mtime, abs=60)
        assert (found.prefix, found.n_shards, found.n_records) == (str(step), 1, 1)

    def test_what_is_left_is_told(self, step: Path) -> None:
        record = files.shard_path(step, 0).with_suffix(".tensors.json")
        files.shard_path(step, 0).unlink()
        assert "no shard file, records of 1, last written" in str(*unfinished_steps(step))
        record.unlink()
        assert unfinished_steps(step) == []
        files.shard_path(step, 0).touch()
        assert str(*unfinished_steps(step)).endswith("or its metadata file was removed")

    def test_with_metadata_it_is_finished(self, step: Path, caplog) -> None:
        MultiShardSaver().save_metadata(step, world_size=1, step=2)
        assert latest_checkpoint(step.parent.parent) == str(step)
        assert caplog.messages == []
        assert unfinished_steps(step.parent.parent) == unfinished_steps(step) == []

    def test_by_name(self, step: Path, caplog) -> None:
        assert latest_checkpoint(step.parent, name="other") is None
        assert caplog.messages == []
        latest_checkpoint(step.parent, name="model")
        assert len(caplog.messages) == 1

    @pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EACCES])
    @pytest.mark.parametrize("operation", ["stat", "scandir"])
    def test_could_not_look(
        self, step: Path, make_shard_faults, operation: str, error: int
    ) -> None:
        make_shard_faults(step.parent).fail(operation, error)
        for call in (latest_checkpoint, unfinished_steps):
            with pytest.raises(OSError, match=os.strerror(error)) as caught:
                call(step.parent)
            assert caught.value.errno == error

    def test_one_that_goes_meanwhile_is_none(self, step: Path, make_shard_faults) -> None:
        make_shard_faults(step.parent).fail("stat", errno.ENOENT)
        assert [found.age for found in unfinished_steps(step.parent)] == [None]
        assert "1 shard file; its save" in str(*unfinished_steps(step.parent))

    def test_in_memory(self) -> None:
        MultiShardSaver().save_shard("memory://unfinished/step/model", 0, {"w": np.arange(3)})
        (found,) = unfinished_steps("memory://unfinished")
        assert found.prefix == "memory:///unfinished/step/model"
        assert 0 <= found.age < 3600
