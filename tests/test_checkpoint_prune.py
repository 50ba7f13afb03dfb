"""A removal beside saves: whatever is saved meanwhile stays, and what kills leave goes."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import checkpoint_files as files
import numpy as np
import pytest

from shardproof import MultiShardSaver
from shardproof.checkpoint import (
    FsspecStorage,
    LocalStorage,
    ShardFileVerifier,
    latest_checkpoint,
    prune,
    unfinished_steps,
)
from shardproof.checkpoint._layout import new_pending_name, new_removal_name, new_seal_name
from shardproof.errors import CheckpointError
from shardproof.testing.faults import faults

WORLD_SIZE = 2
CALLS = ("entries", "open", "move", "remove", "rename", "make_directories", "remove_directory")


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def arrays_of(value: int) -> dict[str, np.ndarray]:
    return {"w": np.full(5, value)}


def save(
    prefix: Path | str,
    step: int,
    *,
    value: int | None = None,
    overwrite: bool = False,
    with_notes: bool = False,
) -> None:
    """Save the same of each rank; with notes, as if it were killed behind the commit."""
    saver = MultiShardSaver(sync=False)
    for rank in range(WORLD_SIZE):
        arrays = arrays_of(step if value is None else value)
        saver.save_shard(prefix, rank, arrays, step=step, overwrite=overwrite)
    notes = [files.note_path(prefix, rank) for rank in range(WORLD_SIZE * with_notes)]
    kept = [(note, note.read_bytes()) for note in notes]
    saver.save_metadata(prefix, world_size=WORLD_SIZE, step=step)
    for note, data in kept:
        note.write_bytes(data)


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


NESTED, FLAT = "slot{}/model", "slot{}"


def at_each_call(
    path: Path, act: Callable[[], object], layout: str = NESTED, *, with_notes: bool = False
) -> Iterator[Callable[[], list[str]]]:
    """Yield removals of all but the newest of three, with something before each of their calls."""
    for nth in range(1, 1000):
        shutil.rmtree(path, ignore_errors=True)
        for number, step in enumerate((10, 20, 30)):
            save(path / layout.format(number), step, with_notes=with_notes)
        acts: list[int] = []
        storage = watched(LocalStorage, lambda acts=acts: (acts.append(1), act()), nth)()
        yield lambda storage=storage: prune(path, 1, storage=storage)
        if not acts:
            return
    raise AssertionError("it makes no end of calls")


def own_names(path: Path) -> list[str]:
    """What is there that only this package needs, for a while."""
    return sorted(str(found) for found in path.rglob(".shardproof*"))


class TestWhatIsSavedMeanwhileStays:
    @pytest.mark.parametrize(
        ("step", "value", "overwrite"), [(50, 50, True), (10, 10, False), (50, 11, False)]
    )
    def test_whenever_it_is_saved(self, tmp_path, step, value, overwrite: bool) -> None:
        """Anew over an old one; once more the same, or another, when the old one has gone."""
        prefix, kept = (tmp_path / "x" / slot / "model" for slot in ("slot0", "slot2"))
        told: list[int] = []

        def act() -> None:
            with suppress(CheckpointError):
                save(prefix, step, value=value, overwrite=overwrite)
                told.append(1)

        n_saved = 0
        for removal in at_each_call(tmp_path / "x", act):
            told.clear()
            removal()
            if told:
                n_saved += 1
                assert is_saved(prefix, step, value)
            assert is_saved(kept, 30, 30) or (told and step > 30)
            assert own_names(tmp_path / "x") == []
        assert n_saved > 3

    def test_shards_of_which_no_checkpoint_is_made_yet(self, tmp_path: Path) -> None:
        """The same bytes as before, so that only the folder tells that they are new."""
        prefix, savers = tmp_path / "x" / "slot0" / "model", []

        def act() -> None:
            saver = MultiShardSaver(sync=False)
            for rank in range(WORLD_SIZE):
                saver.save_shard(prefix, rank, arrays_of(10), step=50, overwrite=True)
            savers.append(saver)

        for removal in at_each_call(tmp_path / "x", act):
            savers.clear()
            removal()
            for saver in savers:
                saver.save_metadata(prefix, world_size=WORLD_SIZE, step=50)
                assert is_saved(prefix, 50, 10)

    def test_a_checkpoint_that_is_made_of_the_old_shards(self, tmp_path: Path, monkeypatch) -> None:
        """Of which there still were notes: one was killed behind the commit."""
        prefix = tmp_path / "x" / "slot0" / "model"
        told: list[str] = []

        def act() -> None:
            with suppress(CheckpointError):
                told.append(MultiShardSaver().save_metadata(prefix, world_size=WORLD_SIZE, step=10))

        n_told = 0
        monkeypatch.setattr("shardproof.checkpoint._prune.sweep_needless", lambda *_: None)
        for removal in at_each_call(tmp_path / "x", act, with_notes=True):
            told.clear()
            removal()
            n_told += bool(told)
            assert not told or is_saved(prefix, 10, 10)
        assert n_told

    def test_a_save_that_is_about_to_end_is_given_way(self, tmp_path: Path) -> None:
        """Its seal is there, and it is not the removal that takes it away."""
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        prefix = tmp_path / "1" / "model"
        seal = prefix.parent / new_seal_name(prefix.name)

        class Late(LocalStorage):
            def make_directories(self, path: str) -> None:
                super().make_directories(path)
                seal.touch()

        assert prune(tmp_path, 1, storage=Late()) == []
        assert files.is_whole(prefix)
        assert own_names(tmp_path) == [str(seal)]
        assert prune(tmp_path, 1) == [str(prefix)]
        assert own_names(tmp_path) == []

    def test_where_nothing_can_be_moved_one_looks_before_metadata_go(self) -> None:
        for step in (10, 20):
            save(f"memory://looks/{step}/model", step)

        class Late(FsspecStorage):
            is_late = False

            def open(self, path: str):
                if "20/model_shard" in path and not self.is_late:
                    self.is_late = True
                    save("memory://looks/10/model", 40, overwrite=True)
                return super().open(path)

        storage = Late(FsspecStorage.of_url("memory://")._fs)
        assert prune("memory://looks", 1, storage=storage) == []
        assert latest_checkpoint("memory://looks") == "memory:///looks/10/model"

    def test_where_nothing_can_be_moved_one_looks_before_each_shard(self) -> None:
        for step in (10, 20):
            save(f"memory://shards/{step}/model", step)

        class Late(FsspecStorage):
            def remove(self, path: str) -> None:
                super().remove(path)
                if path.endswith("_0.shard"):
                    save("memory://shards/10/model", 50, value=10)

        storage = Late(FsspecStorage.of_url("memory://")._fs)
        prune("memory://shards", 1, storage=storage)
        assert latest_checkpoint("memory://shards") == "memory:///shards/10/model"

    def test_a_folder_in_the_place_of_a_shard(self, tmp_path: Path) -> None:
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        shard = files.shard_path(tmp_path / "1" / "model", 0)
        shard.unlink()
        shard.mkdir()
        (shard / "precious").touch()
        assert prune(tmp_path, 1) == [str(tmp_path / "1" / "model")]
        assert os.listdir(tmp_path / "1") == [shard.name]
        assert (shard / "precious").exists()

    def test_another_removal(self, tmp_path: Path) -> None:
        for removal in at_each_call(tmp_path / "x", lambda: prune(tmp_path / "x", 1)):
            removal()
            found = [path for path in (tmp_path / "x").rglob("*") if path.is_file()]
            assert len(found) == WORLD_SIZE + 1
            assert is_saved(tmp_path / "x" / "slot2" / "model", 30, 30)
            assert own_names(tmp_path / "x") == []


class Killed(BaseException):
    """It ends here."""


def kill() -> None:
    raise Killed


class TestARemovalThatWasKilled:
    @pytest.mark.parametrize("layout", [NESTED, FLAT])
    def test_the_next_one_finishes_it(self, tmp_path: Path, layout: str) -> None:
        path, n_told = tmp_path / "x", 0
        for removal in at_each_call(path, kill, layout):
            with suppress(Killed):
                removal()
            assert latest_checkpoint(path) == str(path / layout.format(2))
            assert unfinished_steps(path) == []
            looked = ShardFileVerifier().verify_checkpoint(path / layout.format(0))
            n_told += "the checkpoint is being removed; prune again" in str(looked.warnings)
            assert looked.is_valid == files.is_whole(path / layout.format(0))
            prune(path, 1)
            assert own_names(path) == []
            left = [file for file in path.rglob("*") if file.is_file()]
            assert len(left) == WORLD_SIZE + 1
        assert n_told > 3

    def test_the_next_save_takes_its_place(self, tmp_path: Path) -> None:
        prefix = tmp_path / "x" / "slot0" / "model"
        for removal in at_each_call(tmp_path / "x", kill):
            with suppress(Killed):
                removal()
            save(prefix, 50, overwrite=True)
            assert own_names(prefix.parent) == []
            prune(tmp_path / "x", 1)
            assert is_saved(prefix, 50, 50)

    def test_a_shard_that_nobody_could_look_at_stays(self, tmp_path: Path) -> None:
        """It may be one of a save that has begun since."""
        prefix = tmp_path / "1" / "model"
        save(prefix, 1)
        os.rename(f"{prefix}.metadata.json", f"{prefix}.metadata.json.pruned")
        shard = files.shard_path(prefix, 0)
        for call in ("stat", "open", "read"):
            with faults(tmp_path) as fs:
                fs.fail(call, errno.EIO, match=f"*/{shard.name}", times=None)
                with pytest.raises(OSError, match="Input/output error"):
                    prune(tmp_path)
            assert shard.exists()
        assert prune(tmp_path) == [str(prefix)]

    def test_metadata_in_a_folder_that_can_not_be_read_stay(self, tmp_path: Path, caplog) -> None:
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        prefix = tmp_path / "1" / "model"
        folder = prefix.parent / (new_removal_name(prefix.name))
        folder.mkdir()
        (folder / "model.metadata.json.pruned").write_bytes(b"{")
        assert prune(tmp_path, 2) == []
        assert "What is left of a checkpoint stays" in caplog.text
        assert folder.exists()


class TestWhatKillsLeft:
    def test_a_shard_that_came_too_late(self, tmp_path: Path) -> None:
        """Its saver was killed when somebody else had committed."""
        prefix = tmp_path / "1" / "model"
        save(prefix, 1)
        late = prefix.parent / new_pending_name(prefix.name)
        for cleaned in (prefix.parent / "other", prefix, None):
            late.touch()
            if cleaned:
                with suppress(CheckpointError):  # what is refused cleans, too
                    save(cleaned, 2)
            else:
                prune(tmp_path)
            assert not late.exists()
        late.touch()
        Path(f"{prefix}.metadata.json").unlink()
        prune(tmp_path)
        assert late.exists()

    def test_a_seal_of_one_that_is_removed(self, tmp_path: Path) -> None:
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        (tmp_path / "1" / new_seal_name("model")).touch()
        assert prune(tmp_path, 1) == [str(tmp_path / "1" / "model")]
        assert os.listdir(tmp_path / "1") == []

    def test_a_file_that_was_begun(self, tmp_path: Path) -> None:
        save(tmp_path / "1" / "model", 1)
        code = (
            "import os, sys; from shardproof import _files\n"
            "with _files.being_written(sys.argv[1]): os._exit(0)"
        )
        subprocess.run([sys.executable, "-c", code, tmp_path / "1" / "f"], check=True, timeout=60)
        assert len(own_names(tmp_path)) == 1
        prune(tmp_path)
        assert own_names(tmp_path) == []
