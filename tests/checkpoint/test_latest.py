"""The newest whole checkpoint is found whatever is broken; the last whole one is not removed."""

import contextlib
import errno
import itertools
import logging
import os
import shutil
import time
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
from tests.helpers.saving import saved

DAMAGES = ["missing", "torn", "zero tail"]
SEEN_BY = {"present": DAMAGES[:1], "complete": DAMAGES[:2], "valid": DAMAGES}
"""Which damage a level sees."""


@pytest.fixture
def as_an_older_saver(monkeypatch) -> None:
    """Let names be saved that are refused by now: what has one is read, and removed, as before."""
    monkeypatch.setattr(_commit, "refusals", lambda _: [])


def save(prefix: Path, step: int, world_size: int = 4) -> None:
    """Save tiny tensors, whose sizes don't depend on the step."""
    luck = np.random.default_rng(step)
    saved(prefix, ({"w": luck.integers(1, 100, 8, np.int8)} for _ in range(world_size)), step=step)


def damaged(path: Path, damage: str) -> None:
    """Harm a file, of which there may be other links."""
    data = path.read_bytes()
    path.unlink()
    if damage == "torn":
        path.write_bytes(data[:-3])
    elif damage == "zero tail":
        path.write_bytes(data[:-3] + bytes(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "keep"),
    [("step_{}", 2), pytest.param("step_{}/model", 1, marks=pytest.mark.exhaustive)],
)
def test_the_newest_whole_one_is_found_and_the_last_ones_stay(tmp_path, layout, keep: int) -> None:
    template, path = tmp_path / "template", tmp_path / "x"
    template.mkdir()
    prefixes = [path / layout.format(step) for step in (1, 2, 3)]
    for step in (1, 2, 3):
        save(template / layout.format(step), step, 2)
    pairs = list(itertools.product(prefixes, range(2)))
    for bad in itertools.product([False, True], repeat=len(pairs)):
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(template, path, copy_function=os.link)
        for number, ((prefix, rank), is_bad) in enumerate(zip(pairs, bad, strict=True)):
            if is_bad:
                damaged(files.shard_path(prefix, rank), DAMAGES[number % 3])
        for level, seen in SEEN_BY.items():
            torn = {
                pairs[i][0] for i, is_bad in enumerate(bad) if is_bad and DAMAGES[i % 3] in seen
            }
            whole = [prefix for prefix in prefixes if prefix not in torn]
            assert latest_checkpoint(path, level=level) == (str(whole[-1]) if whole else None), bad
        assert whole == [prefix for prefix in prefixes if files.is_whole(prefix)]

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
    def test_nothing(self, tmp_path: Path) -> None:
        assert latest_checkpoint(tmp_path) is None
        assert prune(tmp_path) == []
        (tmp_path / "notes.txt").write_text("x")
        (tmp_path / "sub").mkdir()
        assert latest_checkpoint(tmp_path) is None
        assert prune(tmp_path, keep=1) == []
        assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "sub"]

    @pytest.mark.parametrize(
        ("earlier", "later"),
        [("00Z", "00.5Z"), ("00.45Z", "00.5Z"), ("00.5Z", "00.51Z"), ("00.9Z", "01Z")],
    )
    def test_times_are_moments(self, tmp_path: Path, earlier: str, later: str) -> None:
        saver = MultiShardSaver()
        for name, seconds in (("a", earlier), ("b", later), ("c", earlier)):
            saver.save_shard(tmp_path / name, 0, {"b": np.arange(3)})
            timestamp = f"2026-11-21T20:00:{seconds}"
            saver.save_metadata(tmp_path / name, world_size=1, step=5, timestamp=timestamp)
        assert latest_checkpoint(tmp_path) == str(tmp_path / "b")

    def test_the_metadata_knows_the_step(self, tmp_path: Path) -> None:
        """Names and times of files are anybody's."""
        save(tmp_path / "step_1", 9)
        save(tmp_path / "step_9", 1)
        assert latest_checkpoint(tmp_path) == str(tmp_path / "step_1")
        os.utime(files.metadata_path(tmp_path / "step_1"), (0, 0))
        assert latest_checkpoint(tmp_path) == str(tmp_path / "step_1")

    @pytest.mark.parametrize("rank", range(4))
    def test_a_shard_of_another_step(self, tmp_path: Path, rank: int) -> None:
        """As large, and whole in itself: somebody copied it."""
        for step in (1, 2):
            save(tmp_path / f"step_{step}", step)
        shutil.copyfile(
            files.shard_path(tmp_path / "step_1", rank), files.shard_path(tmp_path / "step_2", rank)
        )
        assert latest_checkpoint(tmp_path) == str(tmp_path / "step_1")

    def test_shards_without_metadata(self, tmp_path: Path) -> None:
        save(tmp_path / "step_1", 1)
        saver = MultiShardSaver()
        for rank in range(4):
            saver.save_shard(str(tmp_path / "step_2"), rank, {"w": np.ones(3)}, step=2)
        assert latest_checkpoint(tmp_path) == str(tmp_path / "step_1")
        assert prune(tmp_path, keep=1) == []
        assert files.is_whole(tmp_path / "step_1")
        assert files.shard_path(tmp_path / "step_2", 3).exists()  # somebody may be at it
        saver.save_metadata(str(tmp_path / "step_2"), world_size=4, step=2)
        assert latest_checkpoint(tmp_path) == str(tmp_path / "step_2")

    @pytest.mark.parametrize(
        "name",
        ["a b", "ä", "%s", "[x]", "x_shard_0", "x.metadata.json", ".x", "a\nb", "\\"],
    )
    @pytest.mark.usefixtures("as_an_older_saver")
    def test_names_need_not_be_plain(self, tmp_path: Path, name: str) -> None:
        for step in (1, 2):
            save(tmp_path / f"{name}{step}", step, 2)
        assert latest_checkpoint(tmp_path) == str(tmp_path / f"{name}2")
        assert prune(tmp_path, keep=1) == [str(tmp_path / f"{name}1")]
        assert files.is_whole(tmp_path / f"{name}2")
        assert len(list(tmp_path.iterdir())) == 3

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(NotADirectoryError, match="file"):
            latest_checkpoint(tmp_path / "file")

    @pytest.mark.parametrize("keep", [0, -1])
    def test_to_keep_none(self, tmp_path: Path, keep: int) -> None:
        save(tmp_path / "step_1", 1)
        with pytest.raises(ValueError, match="keep"):
            prune(tmp_path, keep=keep)
        assert files.is_whole(tmp_path / "step_1")

    @pytest.mark.parametrize("damage", DAMAGES)
    def test_reasons_are_logged(self, tmp_path: Path, caplog, damage: str) -> None:
        for step in (1, 2, 3):
            save(tmp_path / f"step_{step}", step)
        damaged(files.shard_path(tmp_path / "step_2", 1), damage)
        damaged(files.shard_path(tmp_path / "step_3", 2), damage)
        caplog.set_level(logging.INFO, "shardproof")
        assert latest_checkpoint(tmp_path) == str(tmp_path / "step_1")
        for name in ("step_2_shard_1.shard", "step_3_shard_2.shard"):
            assert any(name in record.getMessage() for record in caplog.records), caplog.text


@pytest.mark.usefixtures("as_an_older_saver")
def test_a_name_with_a_line_end(tmp_path: Path) -> None:
    prefix = tmp_path / "mo\ndel"
    save(prefix, 1)
    assert latest_checkpoint(tmp_path) == str(prefix)
    with pytest.raises(ManifestError, match="it has a control character"):
        read_manifest(str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [errno.EIO, pytest.param(errno.ESTALE, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("level", ["present", "complete", "valid"])
def test_where_nobody_could_look_it_is_the_newest_or_an_error(tmp_path, number, level) -> None:
    for step in (1, 2):
        save(tmp_path / f"step_{step}", step, 2)
    for nth in itertools.count(1):
        with FileSystemFaults(tmp_path) as fs:
            fault = fs.fail("any", number, nth=nth, times=1, optional=True)
            with contextlib.suppress(OSError):
                assert latest_checkpoint(tmp_path, level=level) == str(tmp_path / "step_2"), nth
        if not fault.reached:
            break
    assert nth > 10


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
            *((-5, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h")),
            *((172799, "47 h"), (172800, "2 days")),
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
