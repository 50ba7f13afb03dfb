"""A removal beside saves: whatever is saved meanwhile stays, and what kills leave goes."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardproof import MultiShardSaver
from shardproof._base import files as _files
from shardproof.checkpoint import (
    FsspecStorage,
    LocalStorage,
    ShardFileVerifier,
    latest_checkpoint,
    prune,
)
from shardproof.checkpoint.storage._location import pending_prefix
from shardproof.errors import CheckpointError
from shardproof.testing.faults import FileSystemFaults
from tests.helpers import checkpoint_files as files
from tests.helpers.saving import saved

WORLD_SIZE = 2
CALLS = ("list", "open", "look_up", "remove", "write", "sweep")


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def arrays_of(value: int) -> dict[str, np.ndarray]:
    return {"w": np.full(5, value)}


def save(prefix: Path | str, step: int, *, value: int | None = None, **options: Any) -> None:
    arrays = arrays_of(step if value is None else value)
    saved(prefix, [arrays] * WORLD_SIZE, step=step, **options)


def save_steps(path: Path) -> None:
    for step in (1, 2):
        save(path / f"{step}" / "model", step)


def is_saved(prefix: Path, step: int, value: int) -> bool:
    """Whether a checkpoint is whole and what was saved, found by bytes."""
    expected = [files.tensors_of(arrays_of(value)) for _ in range(WORLD_SIZE)]
    return (
        files.is_whole(prefix)
        and files.metadata_of(prefix)["step"] == step
        and files.read(prefix) == expected
    )


def watched(base: type, act: Callable[[], object], nth: int) -> object:
    """A storage that does something before its nth call, once."""
    count = 0

    def before(name: str) -> Callable:
        def call(self, *args, **keywords):
            nonlocal count
            count += 1
            if count == nth:
                act()
            return getattr(base, name)(self, *args, **keywords)

        return call

    members = {name: before(name) for name in CALLS if hasattr(base, name)}
    return type("Watched", (base,), members)


def at_each_call(
    path: Path, act: Callable[[], object], *, stride: int
) -> Iterator[Callable[[], list[str]]]:
    """Yield removals of all but the newest of three, with something before each of their calls."""
    for nth in range(1, 1000, stride):
        shutil.rmtree(path, ignore_errors=True)
        for number, step in enumerate((10, 20, 30)):
            save(path / f"slot{number}" / "model", step)
        acts: list[int] = []
        storage = watched(LocalStorage, lambda acts=acts: (acts.append(1), act()), nth)()
        yield lambda storage=storage: prune(path, keep=1, storage=storage)
        if not acts:
            return
    raise AssertionError("it makes no end of calls")


def own_names(path: Path) -> list[str]:
    """What is there that only this package needs, for a while."""
    return sorted(str(found) for found in path.rglob(".shardproof*"))


class Memory(FsspecStorage):
    def __init__(self) -> None:
        super().__init__(FsspecStorage.from_url("memory://")._fs)


class TestWhatIsSavedMeanwhileStays:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("step", "value", "overwrite"), [(50, 50, True), (10, 10, False), (50, 11, False)]
    )
    def test_whenever_it_is_saved(self, tmp_path, step, value, overwrite, stride: int) -> None:
        """Anew over an old one; once more the same, or another, when the old one has gone."""
        prefix, kept = (tmp_path / "x" / slot / "model" for slot in ("slot0", "slot2"))
        told: list[int] = []

        def act() -> None:
            with suppress(CheckpointError):
                save(prefix, step, value=value, overwrite=overwrite)
                told.append(1)

        n_saved = 0
        for removal in at_each_call(tmp_path / "x", act, stride=stride):
            told.clear()
            removal()
            if told:
                n_saved += 1
                assert is_saved(prefix, step, value)
            assert is_saved(kept, 30, 30) or (told and step > 30)
            assert own_names(tmp_path / "x") == []
        assert n_saved > 3 // stride

    @pytest.mark.slow
    def test_shards_of_which_no_checkpoint_is_made_yet(self, tmp_path: Path, stride: int) -> None:
        """The same bytes as before: they may go with the old ones, and then none is made."""
        prefix, savers = tmp_path / "x" / "slot0" / "model", []

        def act() -> None:
            saver = MultiShardSaver(sync=False)
            for rank in range(WORLD_SIZE):
                saver.save_shard(prefix, rank, arrays_of(10), step=50, overwrite=True)
            savers.append(saver)

        n_saved = 0
        for removal in at_each_call(tmp_path / "x", act, stride=stride):
            savers.clear()
            removal()
            for saver in savers:
                try:
                    saver.save_metadata(prefix, world_size=WORLD_SIZE, step=50)
                except CheckpointError as error:
                    assert "there is no such file" in str(error) or "not saved" in str(error)  # noqa: PT017
                else:
                    n_saved += 1
                    assert is_saved(prefix, 50, 10)
        assert n_saved > 3 // stride

    def test_elsewhere_one_looks_before_metadata_go(self) -> None:
        for step in (10, 20):
            save(f"memory://looks/{step}/model", step)

        class Late(Memory):
            is_late = False

            def open(self, path: str):
                if "20/model_shard" in path and not self.is_late:
                    self.is_late = True
                    save("memory://looks/10/model", 40, overwrite=True)
                return super().open(path)

        assert prune("memory://looks", keep=1, storage=Late()) == []
        assert latest_checkpoint("memory://looks") == "memory:///looks/10/model"

    def test_metadata_that_are_being_written_are_no_remains(self, caplog) -> None:
        """Where a file is not replaced at one moment, another save may be at them."""
        for step in (10, 20):
            save(f"memory://begun/{step}/model", step)
        metadata = "/begun/10/model.metadata.json"

        class Late(Memory):
            def open(self, path: str):
                if "20/model_shard" in path:
                    self._fs.pipe_file(metadata, b"{")
                return super().open(path)

        storage = Late()
        assert prune("memory://begun", keep=1, storage=storage) == []
        assert caplog.text == ""
        assert storage._fs.cat_file(metadata) == b"{"
        assert prune("memory://begun", keep=1) == []
        assert "Passing over a checkpoint" in caplog.text

    def test_elsewhere_one_looks_before_each_shard(self) -> None:
        for step in (10, 20):
            save(f"memory://shards/{step}/model", step)

        class Late(Memory):
            def remove(self, path: str, **keywords) -> None:
                super().remove(path, **keywords)
                if path.endswith("_0.shard"):
                    save("memory://shards/10/model", 50, value=10)

        prune("memory://shards", keep=1, storage=Late())
        assert latest_checkpoint("memory://shards") == "memory:///shards/10/model"

    def test_a_folder_in_the_place_of_a_shard(self, tmp_path: Path) -> None:
        save_steps(tmp_path)
        shard = files.shard_path(tmp_path / "1" / "model", 0)
        shard.unlink()
        shard.mkdir()
        (shard / "precious").touch()
        assert prune(tmp_path, keep=1) == [str(tmp_path / "1" / "model")]
        assert os.listdir(tmp_path / "1") == [shard.name]
        assert (shard / "precious").exists()

    @pytest.mark.slow
    def test_another_removal(self, tmp_path: Path, stride: int) -> None:
        def act() -> None:
            prune(tmp_path / "x", keep=1)

        for removal in at_each_call(tmp_path / "x", act, stride=stride):
            removal()
            prune(tmp_path / "x", keep=1)  # of two at once, the slower one's copy may be left
            found = [path for path in (tmp_path / "x").rglob("*") if path.is_file()]
            assert len(found) == WORLD_SIZE + 1
            assert is_saved(tmp_path / "x" / "slot2" / "model", 30, 30)
            assert own_names(tmp_path / "x") == []


class Killed(BaseException):
    """It ends here."""


def kill() -> None:
    raise Killed


class TestARemovalThatWasKilled:
    @pytest.mark.slow
    def test_the_next_save_takes_its_place(self, tmp_path: Path, stride: int) -> None:
        prefix = tmp_path / "x" / "slot0" / "model"
        for removal in at_each_call(tmp_path / "x", kill, stride=stride):
            with suppress(Killed):
                removal()
            save(prefix, 50, overwrite=True)
            assert own_names(prefix.parent) == []
            prune(tmp_path / "x", keep=1)
            assert is_saved(prefix, 50, 50)

    def test_a_shard_that_nobody_could_look_at_stays(self, tmp_path: Path) -> None:
        """It may be one of a save that has begun since."""
        prefix = tmp_path / "1" / "model"
        save(prefix, 1)
        os.rename(f"{prefix}.metadata.json", f"{prefix}.metadata.json.pruned")
        shard = files.shard_path(prefix, 0)
        for call in ("stat", "open", "read"):
            with FileSystemFaults(tmp_path) as fs:
                fs.fail(call, errno.EIO, match=f"*/{shard.name}", times=None)
                with pytest.raises(OSError, match="Input/output error"):
                    prune(tmp_path)
            assert shard.exists()
        assert prune(tmp_path) == [str(prefix)]

    def test_shards_stay_whose_metadata_a_power_cut_tore(self, tmp_path: Path, caplog) -> None:
        """Nobody knows what they named."""
        save_steps(tmp_path)
        prefix = tmp_path / "1" / "model"
        files.metadata_path(prefix).unlink()
        Path(f"{prefix}.metadata.json.pruned").write_bytes(b"")
        assert prune(tmp_path, keep=2) == []
        assert "What is left of a checkpoint stays" in caplog.text
        assert all(files.shard_path(prefix, rank).exists() for rank in range(WORLD_SIZE))

    def test_a_copy_of_metadata_that_are_there_still_is_all_that_goes(self, tmp_path: Path) -> None:
        save_steps(tmp_path)
        metadata = files.metadata_path(tmp_path / "1" / "model")
        shutil.copy(metadata, f"{metadata}.pruned")
        assert prune(tmp_path, keep=2) == []
        assert is_saved(tmp_path / "1" / "model", 1, 1)
        assert not os.path.exists(f"{metadata}.pruned")

    def test_one_of_somebody_else_is_passed_over(self, tmp_path: Path, caplog) -> None:
        for step in (1, 2, 3):
            save(tmp_path / f"{step}" / "model", step)
        pruned = Path(f"{tmp_path}/1/model.metadata.json.pruned")
        os.rename(tmp_path / "1" / "model.metadata.json", pruned)
        with FileSystemFaults(tmp_path / "1") as fs:
            fs.fail("rename", errno.EPERM, times=None)
            assert prune(tmp_path, keep=1) == [str(tmp_path / "2" / "model")]
        assert "Passing over a removal that another user began" in caplog.text
        assert pruned.exists()


@pytest.mark.parametrize("call", ["scandir", "readdir", "unlink", "rmdir", "mkdir", "open"])
def test_a_call_that_fails_names_where(tmp_path: Path, call: str) -> None:
    for step in (1, 2):
        save(tmp_path / "x" / f"{step}" / "model", step)
    for nth in range(1, 100):
        with FileSystemFaults(tmp_path / "x") as fs:
            fs.fail(call, errno.EIO, nth=nth, optional=True)
            try:
                prune(tmp_path / "x", keep=1)
            except OSError as error:
                where = getattr(error, "path", None) or error.filename
                assert str(where).startswith(str(tmp_path / "x"))
            else:
                break


class TestWhatKillsLeft:
    def test_a_shard_that_came_too_late(self, tmp_path: Path) -> None:
        """Its saver was killed when somebody else had committed."""
        prefix = tmp_path / "1" / "model"
        save(prefix, 1)
        late = prefix.parent / f"{pending_prefix(prefix.name)}{0:016x}.tmp"
        for act in (lambda: save(prefix.parent / "other", 2), lambda: prune(tmp_path)):
            late.touch()
            act()
            assert not late.exists()
        late.touch()
        Path(f"{prefix}.metadata.json").unlink()
        prune(tmp_path)
        assert late.exists()

    def test_a_file_that_was_begun(self, tmp_path: Path) -> None:
        save(tmp_path / "1" / "model", 1)
        child = os.fork()
        if not child:
            with _files.being_written(tmp_path / "1" / "f"):
                os._exit(0)
        os.waitpid(child, 0)
        assert len(own_names(tmp_path)) == 1
        prune(tmp_path)
        assert own_names(tmp_path) == []


def test_bytes_that_are_saved_again_while_they_are_removed(tmp_path: Path) -> None:
    """A save that begins then takes the copy of the metadata away, and the removal stops."""
    save_steps(tmp_path)
    prefix, n_saves = tmp_path / "1" / "model", 0

    class Busy(LocalStorage):
        def remove(self, path: str, *, only: Any = None, sync: bool = False) -> None:
            nonlocal n_saves
            super().remove(path, only=only, sync=sync)
            if path == f"{prefix}.metadata.json":
                save(prefix, 1)
                n_saves += 1

    assert prune(tmp_path, keep=1, storage=Busy()) == []
    assert n_saves == 1
    assert ShardFileVerifier().verify_checkpoint(prefix).is_valid


def test_one_that_is_given_up_before_its_removal_begins_is_left_to_its_save(tmp_path: Path) -> None:
    save_steps(tmp_path)
    prefix = tmp_path / "1" / "model"
    saver = MultiShardSaver()

    class Busy(LocalStorage):
        def write(self, path: str, data: bytes, *, sync: bool) -> None:
            for rank in range(WORLD_SIZE):
                saver.save_shard(prefix, rank, arrays_of(1), overwrite=True)
            super().write(path, data, sync=sync)

    assert prune(tmp_path, keep=1, storage=Busy()) == []
    saver.save_metadata(prefix, world_size=WORLD_SIZE)
    assert ShardFileVerifier().verify_checkpoint(prefix).is_valid
