"""Saving: what is refused, what is left, and what an interrupted or repeated save does."""

import asyncio
import errno
import itertools
import os
import stat
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shardproof import (
    CheckpointError,
    MultiShardLoader,
    MultiShardSaver,
    UnsyncedError,
)
from shardproof.checkpoint import from_safetensors
from shardproof.checkpoint.save import _shard_writer
from shardproof.testing.faults import FileSystemFaults
from tests.helpers import checkpoint_files as files
from tests.helpers.saving import Lazy, saved

ARRAYS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4))}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "step_1" / "model"


@pytest.fixture
def saver() -> MultiShardSaver:
    return MultiShardSaver()


def names(prefix: Path) -> list[str]:
    return sorted(os.listdir(prefix.parent))


def test_the_precision_is_told_by_the_tensors(prefix: Path) -> None:
    saved(prefix, [{"w": np.ones(3, np.float16), "n": np.arange(2)}])
    assert MultiShardLoader().load_metadata(prefix).sharding.precision == "float16"


class TestMetadataComeLast:
    def test_every_shard_that_is_missing_is_named(self, saver, prefix: Path) -> None:
        saver.save_shard(prefix, 1, ARRAYS)
        with pytest.raises(CheckpointError, match=r"of 3 shards some can't .* \(2\):") as caught:
            saver.save_metadata(prefix, world_size=3)
        assert "rank 0: " in str(caught.value)
        assert "rank 2: " in str(caught.value)
        assert "rank 1: " not in str(caught.value)
        assert "model.metadata.json" not in names(prefix)

    @pytest.mark.parametrize("harm", ["cut", "swapped", "gone", "record"])
    def test_a_shard_that_is_another_is_refused(self, saver, prefix: Path, harm: str) -> None:
        for rank in range(2):
            saver.save_shard(prefix, rank, ARRAYS)
        shard, other = (files.shard_path(prefix, rank) for rank in (1, 0))
        record = files.record_path(prefix, 1)
        {
            "cut": lambda: os.truncate(shard, shard.stat().st_size - 1),
            "swapped": lambda: shard.write_bytes(other.read_bytes()),
            "gone": shard.unlink,
            "record": lambda: record.write_bytes(record.read_bytes().replace(b'"w"', b'"v"')),
        }[harm]()
        with pytest.raises(CheckpointError, match=r"of 2 shards some .* \(1\):\n.*rank 1: "):
            saver.save_metadata(prefix, world_size=2)


class TestThereIsOneAlready:
    def test_it_is_kept(self, saver, prefix: Path) -> None:
        saved(prefix, [ARRAYS])
        before = Path(f"{prefix}_shard_0.shard").read_bytes()
        with pytest.raises(CheckpointError, match="a checkpoint exists already"):
            saver.save_shard(prefix, 0, {"w": np.zeros(9)})
        with pytest.raises(CheckpointError, match="a checkpoint exists already"):
            saver.save_metadata(prefix, world_size=1)
        assert Path(f"{prefix}_shard_0.shard").read_bytes() == before

    def test_it_is_given_up_before_anything_is_written(self, saver, prefix, monkeypatch) -> None:
        saved(prefix, [ARRAYS])

        def look(*_, **__):
            raise ZeroDivisionError(names(prefix))

        monkeypatch.setattr(_shard_writer.ShardWriter, "write", look)
        with pytest.raises(ZeroDivisionError) as caught:
            saver.save_shard(prefix, 0, ARRAYS, overwrite=True)
        assert "model.metadata.json" not in caught.value.args[0]


def test_arrays_may_be_made_one_after_the_other(prefix: Path) -> None:
    made = []

    def make(name: str) -> np.ndarray:
        assert not [array for array in made if array() is not None], "one is still kept"
        array = np.full(1000, int(name))
        made.append(weakref.ref(array))
        return array

    saved(prefix, [Lazy("01234", make)])
    assert len(made) == 5
    found = MultiShardLoader().load_shard(prefix, 0)
    assert {name: array[-1] for name, array in found.items()} == {str(n): n for n in range(5)}


def test_one_that_is_none_after_all_leaves_nothing(saver, prefix: Path) -> None:
    arrays = Lazy("01234", lambda name: np.zeros(1000) if name != "3" else "text")
    with pytest.raises(TypeError, match=r"arrays\['3'\]: expected an array, found str"):
        saver.save_shard(prefix, 0, arrays)
    assert names(prefix) == []


class TestWrongArguments:
    @pytest.mark.parametrize(
        "array",
        [
            "text",
            np.array([object()]),
            np.zeros(2, [("a", "i4")]),
            np.zeros(2, np.longdouble),
            np.ma.masked_array([1, 2], [0, 1]),
        ],
    )
    def test_what_is_no_tensor(self, saver, prefix: Path, array) -> None:
        with pytest.raises(TypeError, match=r"arrays\['x'\]: "):
            saver.save_shard(prefix, 0, {"x": array})
        assert not prefix.parent.exists()

    @pytest.mark.parametrize("name", ["", "n" * 4097, "\udc80"])
    def test_a_name_that_is_none(self, saver, prefix: Path, name: str) -> None:
        with pytest.raises(ValueError, match="arrays: expected names"):
            saver.save_shard(prefix, 0, {name: np.zeros(1)})

    @pytest.mark.parametrize("rank", [-1, 2**31])
    def test_a_rank_that_is_none(self, saver, prefix: Path, rank: int) -> None:
        with pytest.raises(ValueError, match="rank: expected 0 to 2147483647"):
            saver.save_shard(prefix, rank, ARRAYS)

    @pytest.mark.parametrize("prefix", ["", "/tmp/", ".", "a/.."])
    def test_a_prefix_without_a_name(self, saver, prefix: str) -> None:
        with pytest.raises(ValueError, match="prefix: expected a path"):
            saver.save_shard(prefix, 0, ARRAYS)

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("a\nb", "a control character"), ("a\\b", "a backslash"), ("n" * 256, "over 255 bytes")],
        ids=["newline", "backslash", "long"],
    )
    @pytest.mark.parametrize("base", ["", "memory://refused/"])
    def test_a_name_whose_files_would_be_refused(
        self, saver, tmp_path: Path, base: str, name: str, reason: str
    ) -> None:
        """One such checkpoint would block the look at its whole directory."""
        prefix, source = f"{base or tmp_path}/new/{name}", tmp_path / "x.safetensors"
        for save in (
            lambda: saver.save_shard(prefix, 0, ARRAYS),
            lambda: saver.save_shard(prefix, 0, ARRAYS, overwrite=True),
            lambda: saver.save_metadata(prefix, world_size=1),
            lambda: from_safetensors(source, prefix),
        ):
            with pytest.raises(ValueError, match="prefix: no checkpoint can be called") as caught:
                save()
            assert str(caught.value).endswith(reason)
            assert "\n" not in str(caught.value)
        assert os.listdir(tmp_path) == []

    def test_a_timestamp_that_is_none(self, saver, prefix: Path) -> None:
        for text in ("now", "2026-11-21", "2026-11-21T20:00:00", "2026-13-21T20:00:00Z", ""):
            with pytest.raises(ValueError, match="timestamp: expected one such as"):
                saver.save_metadata(prefix, world_size=1, timestamp=text)


def test_metadata_that_nobody_could_read_are_not_written(saver, prefix, monkeypatch) -> None:
    monkeypatch.setattr("shardproof._base.json.MAX_BYTES", 300)
    with pytest.raises(CheckpointError, match=r"it would have .* at most 300 are read"):
        saver.save_shard(prefix, 0, {f"tensor {n}": np.zeros(1) for n in range(9)})


def test_a_full_disk_leaves_nothing(saver, prefix: Path, monkeypatch) -> None:
    real, written = os.pwrite, []

    def pwrite(fd: int, data, offset: int) -> int:
        written.append(len(data))
        if len(written) > 1:
            raise OSError(28, "No space left on device")
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="No space left") as caught:
        saver.save_shard(prefix, 0, ARRAYS)
    assert caught.value.filename == f"{prefix}_shard_0.shard"
    assert names(prefix) == []


@pytest.fixture
def fail_a_sync(monkeypatch) -> Callable[[], None]:
    def fail() -> None:
        real, count = os.fsync, itertools.count()

        def fsync(fd: int) -> None:
            if stat.S_ISDIR(os.fstat(fd).st_mode) and not next(count):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            real(fd)

        monkeypatch.setattr(os, "fsync", fsync)

    return fail


def test_only_what_is_there_is_told_to_be_unsynced(saver, prefix, fail_a_sync) -> None:
    prefix.parent.mkdir()
    fail_a_sync()
    with pytest.raises(UnsyncedError) as unsynced:
        saver.save_shard(prefix, 0, ARRAYS)
    assert unsynced.value.path == str(files.shard_path(prefix, 0))
    assert os.path.exists(unsynced.value.path)


def test_an_old_checkpoint_that_is_given_up_is_no_shard(saver, prefix, fail_a_sync) -> None:
    saved(prefix, [ARRAYS])
    fail_a_sync()
    with pytest.raises(OSError, match="Input/output error") as caught:
        saver.save_shard(prefix, 0, ARRAYS, overwrite=True)
    assert not isinstance(caught.value, UnsyncedError)


@pytest.mark.parametrize("name", ["strategy", "precision"])
def test_metadata_that_are_no_unicode(saver, prefix: Path, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected text in Unicode, found") as caught:
        saver.save_metadata(prefix, world_size=1, **{name: "\ud800"})
    assert type(caught.value) is ValueError


@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"])
def test_what_the_environment_tells_may_be_no_unicode(prefix, monkeypatch, name: str) -> None:
    monkeypatch.setenv(name, os.fsdecode(b"job \xff"))
    assert files.is_whole(saved(prefix, [ARRAYS]))


def test_cancelled_it_leaves_neither_thread_nor_file(saver, prefix: Path) -> None:
    before = {*threading.enumerate()}
    begun, go_on = threading.Event(), threading.Event()

    class Slow(dict):
        def __iter__(self):
            if threading.current_thread() is not threading.main_thread():
                begun.set()
                go_on.wait(30)
            return super().__iter__()

    async def save() -> None:
        task = asyncio.ensure_future(saver.save_shard_async(prefix, 0, Slow(ARRAYS)))
        await asyncio.to_thread(begun.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(save())
    assert {*threading.enumerate()} <= before
    assert not prefix.parent.exists() or names(prefix) == []


def test_what_is_committed_is_not_told_to_have_failed(saver, prefix: Path) -> None:
    """Whichever call fails; those behind the commit only clear up."""
    for nth in itertools.count(1):
        path, told = prefix.parent / f"{nth}" / "model", None
        saver.save_shard(path, 0, ARRAYS)
        with FileSystemFaults(path.parent) as fs:
            fault = fs.fail("any", errno.EIO, nth=nth, times=1, optional=True)
            try:
                saver.save_metadata(path, world_size=1)
            except OSError as error:
                told = error
        is_there = told is None or isinstance(told, UnsyncedError)
        assert files.metadata_path(path).exists() == is_there
        assert files.is_whole(path) or not is_there
        if not fault.reached:
            break
    assert told is None
    assert nth > 30


@pytest.mark.parametrize("match", ["model_shard_0.tensors.json", "model_shard_0.shard"])
@pytest.mark.parametrize("call", ["open", "stat", "read"])
def test_a_shard_that_nobody_could_look_at_is_not_to_be_saved_again(
    saver, prefix: Path, make_shard_faults, call: str, match: str
) -> None:
    saver.save_shard(prefix, 0, ARRAYS)
    make_shard_faults(prefix.parent).fail(call, errno.EIO, match=match)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as caught:
        saver.save_metadata(prefix, world_size=1)
    assert caught.value.errno == errno.EIO
    assert "again" not in str(caught.value)
