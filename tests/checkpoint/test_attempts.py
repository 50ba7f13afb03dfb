"""Attempts to save one checkpoint: at most one makes it, of its own shards; what others leave."""

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof import CheckpointError, MultiShardSaver, ShardFileVerifier, validate
from shardproof.checkpoint import (
    LocalStorage,
    from_safetensors,
    latest_checkpoint,
    prune,
    to_safetensors,
)
from shardproof.checkpoint.save import _commit
from shardproof.checkpoint.storage._location import Location
from tests.helpers import checkpoint_files as files
from tests.helpers.saving import Lazy, saved

JOB, RESTARTS, RUN = "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RUN_ID"
ARRAY, HET = "SLURM_ARRAY_JOB_ID", "SLURM_HET_SIZE"


@pytest.fixture(autouse=True)
def _no_scheduler(monkeypatch) -> None:
    for name in (JOB, RESTARTS, RUN, ARRAY, HET):
        monkeypatch.delenv(name, raising=False)


WHOLE = ["model.metadata.json", "model_shard_0.shard", "model_shard_1.shard"]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "step" / "model"


def arrays_of(attempt: int, rank: int = 0) -> dict[str, np.ndarray]:
    return {"w": np.full(9, 10.0 * attempt + rank)}


def is_of(prefix: Path, attempt: int, world_size: int) -> bool:
    expected = [files.tensors_of(arrays_of(attempt, rank)) for rank in range(world_size)]
    return files.is_whole(prefix) and files.read(prefix) == expected


def save(prefix: Path, attempt: int = 0) -> None:
    saved(prefix, [arrays_of(attempt, rank) for rank in range(2)])


def save_shards(saver: MultiShardSaver, prefix: Path) -> None:
    for rank in range(2):
        saver.save_shard(prefix, rank, arrays_of(0, rank))


def named(prefix: Path) -> list[str]:
    return sorted(os.listdir(prefix.parent))


def given_after(save: Callable[[], object]) -> Lazy:
    """An array before which something is saved."""
    return Lazy(arrays_of(0), lambda name: (save(), arrays_of(0)[name])[1])


class Watched(LocalStorage):
    """A storage where something happens before metadata are made, or get their name."""

    def __init__(self, before_the_name: Any = None, before: Any = None) -> None:
        self.before_the_name, self.before = before_the_name, before

    @contextlib.contextmanager
    def writer(self, path: str, temporary: str, **options: Any) -> Iterator[int]:
        if self.before and "replace" in options:
            self.before()
        with super().writer(path, temporary, **options) as fd:
            yield fd
            if self.before_the_name and "replace" in options:
                self.before_the_name()


class TestMeetings:
    def test_who_is_slower_than_a_whole_save_is_told(self, prefix: Path) -> None:
        arrays = given_after(lambda: save(prefix, 1))
        with pytest.raises(CheckpointError, match="a checkpoint exists already"):
            MultiShardSaver().save_shard(prefix, 0, arrays)
        assert is_of(prefix, 1, 2)
        assert named(prefix) == WHOLE

    def test_who_was_told_to_overwrite_is_told_too(self, prefix: Path) -> None:
        """What was saved meanwhile is not what it was told to give up."""
        saver = MultiShardSaver()
        arrays = given_after(lambda: save(prefix, 1))
        with pytest.raises(CheckpointError, match="no checkpoint is made of two"):
            saver.save_shard(prefix, 0, arrays, overwrite=True)
        assert is_of(prefix, 1, 2)
        saver.save_shard(prefix, 0, arrays_of(0), overwrite=True)
        saver.save_metadata(prefix, world_size=1)
        assert is_of(prefix, 0, 1)

    def test_a_shard_of_another_is_not_sealed_with_own_ones(self, prefix: Path) -> None:
        saver = MultiShardSaver()
        save_shards(saver, prefix)
        MultiShardSaver().save_shard(prefix, 1, arrays_of(1, 1))
        with pytest.raises(CheckpointError, match=r"rank 1: .*another attempt saved it") as error:
            saver.save_metadata(prefix, world_size=2)
        assert "rank 0" not in str(error.value)
        assert not files.metadata_path(prefix).exists()

    def test_a_conversion_takes_in_nothing_but_its_own(self, tmp_path: Path, prefix: Path) -> None:
        """Not even what another thread of this process saves meanwhile."""

        class Met(LocalStorage):
            def write(self, path: str, data: bytes, *, sync: bool) -> None:
                super().write(path, data, sync=sync)
                if path.endswith("_1.tensors.json"):
                    MultiShardSaver().save_shard(prefix, 0, arrays_of(1))

        source = saved(tmp_path / "source", ({f"w{rank}": np.zeros(9)} for rank in range(2)))
        to_safetensors(source, tmp_path / "files")
        with pytest.raises(CheckpointError, match=r"rank 0: .*another attempt saved it"):
            from_safetensors(tmp_path / "files", prefix, storage=Met())
        assert not files.metadata_path(prefix).exists()

    def test_a_shard_that_comes_while_metadata_get_their_name_ends_that(self, prefix) -> None:
        storage = Watched(before_the_name=lambda: MultiShardSaver().save_shard(prefix, 0, {}))
        saver = MultiShardSaver(storage)
        save_shards(saver, prefix)
        with pytest.raises(CheckpointError, match="no checkpoint is made of two"):
            saver.save_metadata(prefix, world_size=2)
        assert not files.metadata_path(prefix).exists()
        assert [name for name in named(prefix) if name.startswith(".")] == []

    def test_a_shard_that_is_about_to_come_is_taken_away(self, prefix: Path) -> None:
        saver = MultiShardSaver()
        saver.save_shard(prefix, 0, arrays_of(0))

        class Late(LocalStorage):
            n_looks = 0

            def look_up(self, path: str) -> bool | None:
                found = super().look_up(path)
                self.n_looks += path == str(files.metadata_path(prefix))
                if self.n_looks == 2:  # it saw no metadata, and its own file is written
                    self.n_looks += 1
                    saver.save_metadata(prefix, world_size=1)
                return found

        with pytest.raises(CheckpointError, match="no checkpoint is made of two"):
            MultiShardSaver(Late()).save_shard(prefix, 0, arrays_of(1))
        assert is_of(prefix, 0, 1)
        assert [name for name in named(prefix) if name.startswith(".")] == []

    def test_of_two_that_make_one_the_second_is_told(self, prefix: Path) -> None:
        late = Watched(before=lambda: MultiShardSaver().save_metadata(prefix, world_size=2))
        save_shards(MultiShardSaver(), prefix)
        with pytest.raises(CheckpointError, match="a checkpoint exists already"):
            MultiShardSaver(late).save_metadata(prefix, world_size=2)
        assert is_of(prefix, 0, 2)

    def test_of_two_that_make_one_at_once_each_is_told(self, prefix: Path) -> None:
        """Both can try again: neither finds what the other one left, nor what a kill did."""

        def second() -> None:
            with pytest.raises(CheckpointError, match="no checkpoint is made of two"):
                MultiShardSaver().save_metadata(prefix, world_size=1)

        MultiShardSaver().save_shard(prefix, 0, arrays_of(0))
        with pytest.raises(CheckpointError, match="no checkpoint is made of two"):
            MultiShardSaver(Watched(before_the_name=second)).save_metadata(prefix, world_size=1)
        assert not files.metadata_path(prefix).exists()
        MultiShardSaver().save_metadata(prefix, world_size=1)
        assert is_of(prefix, 0, 1)
        assert [name for name in named(prefix) if name.startswith(".")] == []

    def test_metadata_that_a_kill_left_in_the_making(self, prefix: Path) -> None:
        making = Path(Location(LocalStorage(), str(prefix)).in_the_making)
        prefix.parent.mkdir()
        making.touch()
        save(prefix)
        assert is_of(prefix, 0, 2)
        making.touch()
        prune(prefix.parent)
        assert not making.exists()

    def test_no_metadata_get_their_name_where_the_second_look_fails(
        self, prefix: Path, make_shard_faults
    ) -> None:
        save_shards(MultiShardSaver(), prefix)
        make_shard_faults(prefix.parent).fail("open", errno.EIO, match="*_1.shard", nth=2, times=1)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            MultiShardSaver().save_metadata(prefix, world_size=2)
        assert not files.metadata_path(prefix).exists()
        MultiShardSaver().save_metadata(prefix, world_size=2)
        assert is_of(prefix, 0, 2)


def seal_of(prefix: Path, *attempts: str | None, own: str | None = None) -> None:
    for rank, attempt in enumerate(attempts):
        MultiShardSaver(attempt=attempt).save_shard(prefix, rank, arrays_of(0, rank))
    MultiShardSaver(attempt=own).save_metadata(prefix, world_size=len(attempts))


class TestNames:
    def test_of_two(self, prefix: Path) -> None:
        with pytest.raises(CheckpointError, match=r"rank 0 is of attempt 'a' .*, rank 1 of 'b'"):
            seal_of(prefix, "a", "b")

    @pytest.mark.parametrize("attempts", [("b", "b"), ("a", None), (None, None)])
    def test_of_another_than_the_one_that_is_named(self, prefix: Path, attempts) -> None:
        with pytest.raises(CheckpointError, match="expected attempt 'a', found") as error:
            seal_of(prefix, *attempts, own="a")
        assert str(error.value).count("expected attempt") == sum(a != "a" for a in attempts)

    @pytest.mark.parametrize(
        ("first", "second", "is_one"),
        [
            ({JOB: "1"}, {JOB: "1"}, True),
            ({JOB: "1"}, {JOB: "2"}, False),
            ({JOB: "1"}, {JOB: "1", RESTARTS: "1"}, False),
            ({JOB: "1"}, {}, True),
            ({JOB: "1", ARRAY: "1"}, {JOB: "2", ARRAY: "1"}, True),
            ({JOB: "1", HET: "2"}, {JOB: "2", HET: "2"}, True),
            ({RUN: "a"}, {RUN: "b"}, False),
            ({RUN: "a"}, {RUN: "none"}, True),
            ({RUN: "a"}, {JOB: "1"}, True),
        ],
    )
    def test_what_a_scheduler_says(
        self, prefix: Path, monkeypatch, first: dict, second: dict, is_one: bool
    ) -> None:
        for rank, said in enumerate((first, second)):
            with monkeypatch.context() as patch:
                for name, text in said.items():
                    patch.setenv(name, text)
                MultiShardSaver().save_shard(prefix, rank, arrays_of(0, rank))
        if is_one:
            MultiShardSaver().save_metadata(prefix, world_size=2)
            assert is_of(prefix, 0, 2)
        else:
            with pytest.raises(CheckpointError, match="rank 0 is of attempt"):
                MultiShardSaver().save_metadata(prefix, world_size=2)

    def test_a_note_that_names_none(self, prefix: Path) -> None:
        """As records were until there were attempts."""
        MultiShardSaver().save_shard(prefix, 0, arrays_of(0))
        path = files.record_path(prefix, 0)
        said = json.loads(path.read_bytes())
        assert set(said) == {"step", "shard", "token", "checksum"}
        del said["token"], said["checksum"]
        path.write_bytes(files.sign(json.dumps({**said, "checksum": ""}).encode()))
        MultiShardSaver().save_metadata(prefix, world_size=1)
        assert is_of(prefix, 0, 1)


@pytest.fixture
def with_records(prefix: Path) -> Path:
    """A checkpoint whose save was killed behind the commit."""
    save_shards(MultiShardSaver(), prefix)
    records = {rank: files.record_path(prefix, rank).read_bytes() for rank in range(2)}
    MultiShardSaver().save_metadata(prefix, world_size=2)
    for rank, data in records.items():
        files.record_path(prefix, rank).write_bytes(data)
    assert [name for name in named(prefix) if name.startswith(".")] == []
    return prefix


def test_prune_removes_records_that_nobody_needs(with_records: Path) -> None:
    assert prune(with_records.parent) == []
    assert named(with_records) == WHOLE


def test_prune_removes_records_that_a_power_cut_left_empty(with_records: Path) -> None:
    files.record_path(with_records, 1).write_bytes(b"")
    assert prune(with_records.parent) == []
    assert named(with_records) == WHOLE


def test_a_record_that_takes_the_place_of_one_that_was_read_stays(
    with_records: Path, monkeypatch
) -> None:
    """As where a save that overwrites comes between."""
    path, real = files.record_path(with_records, 0), _commit.read_record

    def read_record(location, rank):
        record = real(location, rank)
        if rank == 0:
            path.unlink()
            path.write_bytes(b"new")
        return record

    monkeypatch.setattr(_commit, "read_record", read_record)
    prune(with_records.parent)
    assert path.read_bytes() == b"new"
    assert not files.record_path(with_records, 1).exists()


def test_records_of_other_shards_stay(with_records: Path) -> None:
    other = with_records.parent.parent / "other" / "model"
    MultiShardSaver().save_shard(other, 0, arrays_of(1))
    files.record_path(with_records, 0).write_bytes(files.record_path(other, 0).read_bytes())
    files.record_path(with_records, 1).write_bytes(b"{")
    prune(with_records.parent)
    assert files.record_path(with_records, 0).exists()
    assert files.record_path(with_records, 1).exists()


def test_a_removal_leaves_what_was_saved_since(prefix: Path) -> None:
    """As where it was begun on another machine, before this save began."""
    save(prefix)
    pruned = Path(f"{files.metadata_path(prefix)}.pruned")
    metadata = files.metadata_path(prefix).read_bytes()
    saver = MultiShardSaver()
    saver.save_shard(prefix, 0, arrays_of(1, 0), overwrite=True)
    pruned.write_bytes(metadata)
    prune(prefix.parent)
    assert files.shard_path(prefix, 0).exists()
    assert not files.shard_path(prefix, 1).exists()
    saver.save_shard(prefix, 1, arrays_of(1, 1))
    saver.save_metadata(prefix, world_size=2)
    assert is_of(prefix, 1, 2)


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE])
@pytest.mark.parametrize(
    ("look", "match"),
    [
        *((look, "*.metadata.json") for look in (validate, latest_checkpoint, prune)),
        *((look, "*.shard") for look in (latest_checkpoint, prune)),
    ],
)
def test_nobody_could_look(prefix: Path, make_shard_faults, look, match, number: int) -> None:
    save(prefix)
    make_shard_faults(prefix.parent).fail("open", number, match=match)
    with pytest.raises(OSError, match=os.strerror(number)) as error:
        look(prefix.parent)
    assert error.value.errno == number


@pytest.mark.parametrize("call", ["open", "read"])
def test_a_verdict_says_that_nobody_could_look(prefix: Path, make_shard_faults, call: str) -> None:
    save(prefix)
    make_shard_faults(prefix.parent).fail(call, errno.EIO, match="*.shard")
    assert ShardFileVerifier().verify_checkpoint(prefix).exit_code == 3
