"""A removal beside saves: whatever is saved meanwhile stays, and what kills leave goes."""

import dataclasses
import errno
import functools
import os
import re
import shutil
import struct
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

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
from shardproof.checkpoint.format._layout import new_own_name
from shardproof.errors import CheckpointError
from shardproof.testing.faults import FileSystemFaults
from tests.helpers import checkpoint_files as files

WORLD_SIZE = 2
CALLS = (
    "list",
    "open",
    "move",
    "remove",
    "rename",
    "make_directories",
    "remove_directory",
    "make_folder",
    "look_up",
)


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
    with_records: bool = False,
) -> None:
    """Save the same of each rank; with records, as if it were killed behind the commit."""
    saver = MultiShardSaver(sync=False)
    for rank in range(WORLD_SIZE):
        arrays = arrays_of(step if value is None else value)
        saver.save_shard(prefix, rank, arrays, step=step, overwrite=overwrite)
    records = [files.record_path(prefix, rank) for rank in range(WORLD_SIZE * with_records)]
    kept = [(record, record.read_bytes()) for record in records]
    saver.save_metadata(prefix, world_size=WORLD_SIZE, step=step)
    for record, data in kept:
        record.write_bytes(data)


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
    path: Path,
    act: Callable[[], object],
    layout: str = NESTED,
    *,
    with_records: bool = False,
    stride: int = 1,
) -> Iterator[Callable[[], list[str]]]:
    """Yield removals of all but the newest of three, with something before each of their calls."""
    for nth in range(1, 1000, stride):
        shutil.rmtree(path, ignore_errors=True)
        for number, step in enumerate((10, 20, 30)):
            save(path / layout.format(number), step, with_records=with_records)
        acts: list[int] = []
        storage = watched(LocalStorage, lambda acts=acts: (acts.append(1), act()), nth)()
        yield lambda storage=storage: prune(path, keep=1, storage=storage)
        if not acts:
            return
    raise AssertionError("it makes no end of calls")


def begin_and_die(path: Path) -> None:
    """Leave the temporary file of a writer that was killed."""
    code = (
        "import os, sys; from shardproof._base import files as _files\n"
        "with _files.being_written(sys.argv[1]): os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)


def own_names(path: Path) -> list[str]:
    """What is there that only this package needs, for a while."""
    return sorted(str(found) for found in path.rglob(".shardproof*"))


@pytest.mark.once
class TestWhatIsSavedMeanwhileStays:
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
        """Of which there still were records: one was killed behind the commit."""
        prefix = tmp_path / "x" / "slot0" / "model"
        told: list[str] = []

        def act() -> None:
            with suppress(CheckpointError):
                told.append(MultiShardSaver().save_metadata(prefix, world_size=WORLD_SIZE, step=10))

        n_told = 0
        monkeypatch.setattr("shardproof.checkpoint._prune.sweep_leftovers", lambda *_: None)
        for removal in at_each_call(tmp_path / "x", act, with_records=True):
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
        seal = in_its_gate(prefix, "seal")

        class Late(LocalStorage):
            def make_directories(self, path: str) -> None:
                super().make_directories(path)
                seal.touch()

        assert prune(tmp_path, keep=1, storage=Late()) == []
        assert files.is_whole(prefix)
        assert own_names(tmp_path) == [str(seal.parent), str(seal)]
        assert prune(tmp_path, keep=1) == [str(prefix)]
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

        storage = Late(FsspecStorage.from_url("memory://")._fs)
        assert prune("memory://looks", keep=1, storage=storage) == []
        assert latest_checkpoint("memory://looks") == "memory:///looks/10/model"

    def test_metadata_that_are_being_written_are_no_remains(self, caplog) -> None:
        """Where a file is not replaced at one moment, another save may be at them."""
        for step in (10, 20):
            save(f"memory://begun/{step}/model", step)
        metadata = "/begun/10/model.metadata.json"

        class Late(FsspecStorage):
            def open(self, path: str):
                if "20/model_shard" in path:
                    self._fs.pipe_file(metadata, b"{")
                return super().open(path)

        storage = Late(FsspecStorage.from_url("memory://")._fs)
        assert prune("memory://begun", keep=1, storage=storage) == []
        assert caplog.text == ""
        assert storage._fs.cat_file(metadata) == b"{"
        assert prune("memory://begun", keep=1) == []
        assert "Passing over a checkpoint" in caplog.text

    def test_where_nothing_can_be_moved_one_looks_before_each_shard(self) -> None:
        for step in (10, 20):
            save(f"memory://shards/{step}/model", step)

        class Late(FsspecStorage):
            def remove(self, path: str) -> None:
                super().remove(path)
                if path.endswith("_0.shard"):
                    save("memory://shards/10/model", 50, value=10)

        storage = Late(FsspecStorage.from_url("memory://")._fs)
        prune("memory://shards", keep=1, storage=storage)
        assert latest_checkpoint("memory://shards") == "memory:///shards/10/model"

    def test_a_folder_in_the_place_of_a_shard(self, tmp_path: Path) -> None:
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        shard = files.shard_path(tmp_path / "1" / "model", 0)
        shard.unlink()
        shard.mkdir()
        (shard / "precious").touch()
        assert prune(tmp_path, keep=1) == [str(tmp_path / "1" / "model")]
        assert os.listdir(tmp_path / "1") == [shard.name]
        assert (shard / "precious").exists()

    def test_another_removal(self, tmp_path: Path) -> None:
        for removal in at_each_call(tmp_path / "x", lambda: prune(tmp_path / "x", keep=1)):
            removal()
            found = [path for path in (tmp_path / "x").rglob("*") if path.is_file()]
            assert len(found) == WORLD_SIZE + 1
            assert is_saved(tmp_path / "x" / "slot2" / "model", 30, 30)
            assert own_names(tmp_path / "x") == []


class Killed(BaseException):
    """It ends here."""


def kill() -> None:
    raise Killed


@pytest.mark.once
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
            prune(path, keep=1)
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
        """Nobody knows what they named: so the folder goes, and the shards are told of."""
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        prefix = tmp_path / "1" / "model"
        folder = removal_folder(prefix)
        files.metadata_path(prefix).unlink()
        (folder / "model.metadata.json.pruned").write_bytes(b"")
        assert prune(tmp_path, keep=2) == []
        assert "What is left of a checkpoint stays" in caplog.text
        assert own_names(tmp_path) == []
        assert [step.prefix for step in unfinished_steps(tmp_path)] == [str(prefix)]
        warnings = ShardFileVerifier().verify_checkpoint(prefix).warnings
        assert "prune again" not in str(warnings)
        assert all(files.shard_path(prefix, rank).exists() for rank in range(WORLD_SIZE))

    def test_metadata_in_a_folder_that_nobody_could_look_at_stay(self, tmp_path: Path) -> None:
        save(tmp_path / "2" / "model", 2)
        folder = removal_folder(tmp_path / "2" / "model")
        metadata = folder / "model.metadata.json.pruned"
        metadata.write_bytes(b"{")
        with FileSystemFaults(tmp_path) as fs:
            fs.fail("read", errno.EIO, match=f"*/{metadata.name}", times=None)
            with pytest.raises(OSError, match="Input/output error"):
                prune(tmp_path)
        assert metadata.exists()


PRECIOUS = {"thesis.tex": b"years", "model_shard_0.shard": b"and years"}


def with_precious_files(path: Path) -> Path:
    path.mkdir()
    for name, data in PRECIOUS.items():
        (path / name).write_bytes(data)
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def in_its_gate(prefix: Path, kind: Literal["removal", "seal"]) -> Path:
    """The name of something in the gate of a prefix, which is made."""
    path = prefix.parent / new_own_name(prefix.name, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def removal_folder(prefix: Path) -> Path:
    """A folder into which somebody was about to move a checkpoint."""
    folder = in_its_gate(prefix, "removal")
    folder.mkdir()
    return folder


def replace_by_link(place: Path, target: Path) -> None:
    """Put a link in the place of a directory, which is moved aside."""
    os.rename(place, place.parent.parent / f"aside-{place.name}")
    place.symlink_to(target)


@pytest.mark.once
class TestNoLinkIsFollowedOutOfTheDirectory:
    def test_a_step_that_is_archived_at_any_moment(self, tmp_path: Path) -> None:
        """It is moved out of the directory, and a link left in its place."""
        path, archive = tmp_path / "x", tmp_path / "archive"
        archived: list[dict[str, bytes]] = []

        def act() -> None:
            if (path / "slot0").exists():
                os.rename(path / "slot0", archive / "slot0")
                (path / "slot0").symlink_to(archive / "slot0")
                archived.append(contents(archive))

        n_whole = 0
        for removal in at_each_call(path, act):
            shutil.rmtree(archive, ignore_errors=True)
            archive.mkdir()
            archived.clear()
            removal()
            n_whole += files.is_whole(archive / "slot0" / "model")
            assert not archived or contents(archive) == archived[0]
            assert is_saved(path / "slot2" / "model", 30, 30)
        assert n_whole > 3

    def test_the_folder_of_a_removal_that_becomes_one(self, tmp_path: Path) -> None:
        path, home = tmp_path / "x", with_precious_files(tmp_path / "home")
        swapped: list[Path] = []

        def act() -> None:
            swapped.extend(
                f for f in path.glob(".shardproof*/.shardproof*-removal-*") if f.is_dir()
            )
            for folder in swapped[-1:]:
                replace_by_link(folder, home)

        n_swapped = 0
        for removal in at_each_call(path, act, FLAT):
            swapped.clear()
            removal()
            n_swapped += len(swapped)
            assert contents(home) == PRECIOUS
            assert is_saved(path / "slot2", 30, 30)
        assert n_swapped > 3

    def test_a_folder_that_becomes_one_while_it_is_emptied_by_a_save(self, tmp_path: Path) -> None:
        """Which is told, and succeeds the next time."""
        prefix, home = tmp_path / "x" / "model", with_precious_files(tmp_path / "home")
        folder = removal_folder(prefix)
        (folder / "model_shard_1.shard").touch()

        class Late(LocalStorage):
            def remove_directory(self, path: str) -> bool:
                is_gone = super().remove_directory(path)
                if not folder.is_symlink():
                    replace_by_link(folder, home)
                return is_gone

        with pytest.raises(CheckpointError, match="expected a folder of files"):
            MultiShardSaver(Late()).save_shard(prefix, 0, arrays_of(1))
        assert contents(home) == PRECIOUS
        save(prefix, 1)
        assert is_saved(prefix, 1, 1)
        assert contents(home) == PRECIOUS

    def test_a_step_that_becomes_one_before_it_is_swept(self, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        begin_and_die(outside / "f")
        began = os.listdir(outside)
        for step in (1, 2):
            save(tmp_path / "x" / f"{step}" / "model", step)

        class Late(LocalStorage):
            def sweep(self, directory: str) -> None:
                if directory.endswith("1"):
                    replace_by_link(Path(directory), outside)
                super().sweep(directory)

        prune(tmp_path / "x", keep=1, storage=Late())
        assert (tmp_path / "x" / "1").is_symlink()
        assert os.listdir(outside) == began

    def test_a_link_that_has_the_name_of_one(self, tmp_path: Path) -> None:
        """It leads to metadata that name the shards of a save that still runs."""
        prefix, other = tmp_path / "x" / "model", tmp_path / "other" / "model"
        save(other, 1)
        outside = tmp_path / "outside"
        outside.mkdir()
        os.rename(f"{other}.metadata.json", outside / "model.metadata.json.pruned")
        saver = MultiShardSaver()
        for rank in range(WORLD_SIZE):
            saver.save_shard(prefix, rank, arrays_of(1))
        in_its_gate(prefix, "removal").symlink_to(outside)
        for _ in range(2):
            assert prune(prefix.parent) == []
        assert os.listdir(outside) == ["model.metadata.json.pruned"]
        assert [step.n_shards for step in unfinished_steps(prefix.parent)] == [WORLD_SIZE]
        saver.save_metadata(prefix, world_size=WORLD_SIZE)
        assert is_saved(prefix, 0, 1)

    def test_the_directory_itself_may_be_one(self, tmp_path: Path) -> None:
        for step in (1, 2):
            save(tmp_path / "x" / f"{step}" / "model", step)
        (tmp_path / "run").symlink_to(tmp_path / "x")
        assert prune(tmp_path / "run", keep=1) == [str(tmp_path / "run" / "1" / "model")]
        assert own_names(tmp_path) == []


def test_a_removal_that_fails_names_the_files(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / f"{step}" / "model", step)
    with FileSystemFaults(tmp_path) as fs:
        fs.fail("rename", errno.EACCES, match="*/model_shard_0.shard")
        with pytest.raises(PermissionError) as error:
            prune(tmp_path, keep=1)
    assert error.value.filename == str(tmp_path / "1" / "model_shard_0.shard")
    assert error.value.filename2.startswith(str(tmp_path / "1" / ".shardproof-"))


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
                assert str(error.filename).startswith(str(tmp_path / "x"))  # noqa: PT017
            else:
                break


@dataclasses.dataclass(frozen=True)
class Named(LocalStorage):
    name: str = "x"


@dataclasses.dataclass
class Unhashable(LocalStorage):
    name: str = "x"


@pytest.mark.parametrize("kind", [Named, Unhashable])
def test_a_storage_of_ones_own_may_be_a_dataclass(kind: type[LocalStorage], tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / f"{step}" / "model", step)
    assert prune(tmp_path, keep=1, storage=kind()) == [str(tmp_path / "1" / "model")]


def test_how_many_stay_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="positional"):
        prune(tmp_path, 3)


class TestANameThatIsListedAndCanNotBeFound:
    """A server says so of a file that is in the folder of a removal."""

    @pytest.fixture
    def folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        folder, real, tried = removal_folder(tmp_path / "1" / "model"), os.rename, []
        (folder / "ghost").touch()

        def rename(source: str, target: str, **fds: int | None) -> None:
            if os.path.basename(source) != "ghost":
                return real(source, target, **fds)
            tried.append(source)
            assert len(tried) < 100, "it tries without end"
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)

        monkeypatch.setattr(os, "rename", rename)
        return folder

    def test_does_not_stop_a_removal(self, tmp_path: Path, folder: Path, caplog) -> None:
        assert prune(tmp_path, keep=1) == [str(tmp_path / "1" / "model")]
        assert f"'{folder}': expected a folder of files that were moved there" in caplog.text
        assert own_names(tmp_path) == [str(folder.parent), str(folder)]

    def test_is_told_to_who_saves(self, tmp_path: Path, folder: Path) -> None:
        prefix = tmp_path / "1" / "model"
        with pytest.raises(CheckpointError, match="found one that stays not empty") as error:
            save(prefix, 3, overwrite=True)
        assert error.value.path == str(folder)

    def test_may_go_meanwhile(self, tmp_path: Path, folder: Path) -> None:
        class Late(LocalStorage):
            n_looks = 0

            def list(self, directory: str) -> Sequence[tuple[str, bool]]:
                found = super().list(directory)
                if directory == str(folder) and found:
                    Late.n_looks += 1
                    (folder / "ghost").unlink()
                return found

        prefix = tmp_path / "1" / "model"
        MultiShardSaver(Late()).save_shard(prefix, 0, arrays_of(3), step=3, overwrite=True)
        assert Late.n_looks == 1
        assert not folder.exists()


class TestWhatNobodyPutThere:
    """It has the name of a removal's folder, or of a file from there, and is none of ours."""

    @pytest.fixture
    def name(self, tmp_path: Path) -> Path:
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        return in_its_gate(tmp_path / "1" / "model", "removal")

    @pytest.fixture(params=["a file", "a directory of a file's name", "a folder with a directory"])
    def junk(self, request, name: Path) -> Path:
        if request.param == "a file":
            name.write_bytes(b"precious")
        elif request.param == "a folder with a directory":
            (name / "d").mkdir(parents=True)
        else:
            name = name.with_name(f"{name.name}.tmp")
            (name / "d").mkdir(parents=True)
        return name

    def test_does_not_stop_a_removal(self, tmp_path: Path, junk: Path) -> None:
        assert prune(tmp_path, keep=1) == [str(tmp_path / "1" / "model")]
        assert prune(tmp_path, keep=1) == []
        assert is_saved(tmp_path / "2" / "model", 2, 2)
        assert own_names(tmp_path) == [str(junk.parent), str(junk)]
        assert junk.is_file() or os.listdir(junk) == ["d"]

    def test_hides_no_unfinished_step(self, tmp_path: Path, name: Path) -> None:
        files.metadata_path(tmp_path / "1" / "model").unlink()
        name.touch()
        for path in (tmp_path, tmp_path / "1" / "model"):
            assert len(unfinished_steps(path)) == 1
        warnings = ShardFileVerifier().verify_checkpoint(tmp_path / "1" / "model").warnings
        assert "prune again" not in str(warnings)

    def test_a_folder_that_stays_is_told(self, tmp_path: Path, name: Path, caplog) -> None:
        (name / "d").mkdir(parents=True)
        prune(tmp_path)
        assert f"'{name}': expected a folder of files that were moved there" in caplog.text

    def test_a_save_is_told_of_a_folder_that_stays(self, tmp_path: Path, name: Path) -> None:
        """A removal that is stopped and goes on could move its shards there."""
        (name / "d").mkdir(parents=True)
        for _ in range(2):
            with pytest.raises(CheckpointError, match="see what it is, and remove it") as error:
                save(tmp_path / "1" / "model", 3, overwrite=True)
            assert error.value.path == str(name)
        shutil.rmtree(name)
        save(tmp_path / "1" / "model", 3, overwrite=True)
        assert is_saved(tmp_path / "1" / "model", 3, 3)

    def test_a_save_passes_by_what_nothing_can_be_moved_into(
        self, tmp_path: Path, name: Path
    ) -> None:
        other = name.with_name(f"{name.name}.tmp")
        (other / "d").mkdir(parents=True)
        save(tmp_path / "1" / "model", 3, overwrite=True)
        assert is_saved(tmp_path / "1" / "model", 3, 3)
        assert (other / "d").exists()


class NotMine(LocalStorage):
    """Where nothing of somebody else's can be moved, nor a folder of his removed."""

    kept: Path

    def rename(self, source: str, target: str, *, sync: bool) -> None:
        if target.endswith(".metadata.json.pruned"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source)
        super().rename(source, target, sync=sync)

    def remove_directory(self, path: str) -> bool:
        if Path(path) == self.kept:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        return super().remove_directory(path)


class TestARemovalOfSomebodyElse:
    @pytest.fixture
    def prefix(self, tmp_path: Path) -> Path:
        for step in (1, 2):
            save(tmp_path / f"{step}" / "model", step)
        return tmp_path / "1" / "model"

    @pytest.fixture
    def storage(self, prefix: Path) -> NotMine:
        storage = NotMine()
        storage.kept = Path("/nothing")
        return storage

    def test_one_that_can_not_begin_leaves_no_folder(
        self, tmp_path: Path, prefix: Path, storage: NotMine
    ) -> None:
        with pytest.raises(PermissionError, match=re.escape(f"{prefix}.metadata.json")):
            prune(tmp_path, keep=1, storage=storage)
        assert own_names(tmp_path) == []
        assert is_saved(prefix, 1, 1)

    def test_one_of_which_nobody_could_see_whether_it_may_begin_leaves_none(
        self, tmp_path: Path, prefix: Path
    ) -> None:
        class Blind(LocalStorage):
            def open(self, path: str):
                if own_names(tmp_path):
                    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
                return super().open(path)

        with pytest.raises(OSError, match="Input/output error"):
            prune(tmp_path, keep=1, storage=Blind())
        assert own_names(tmp_path) == []
        assert is_saved(prefix, 1, 1)

    def test_one_that_may_not_be_finished_is_passed_over(
        self, tmp_path: Path, prefix: Path, storage: NotMine, caplog
    ) -> None:
        save(tmp_path / "0" / "model", 0)
        storage.kept = removal_folder(tmp_path / "0" / "model")
        storage.rename = functools.partial(LocalStorage.rename, storage)
        assert prune(tmp_path, keep=1, storage=storage) == [
            str(prefix),
            str(tmp_path / "0" / "model"),
        ]
        assert f"Operation not permitted: '{storage.kept}'" in caplog.text
        assert own_names(tmp_path) == [str(storage.kept.parent), str(storage.kept)]

    def test_the_old_checkpoint_is_not_given_up_for_it(
        self, prefix: Path, storage: NotMine
    ) -> None:
        """Its shards could be moved there still."""
        storage.kept = removal_folder(prefix)
        saver = MultiShardSaver(storage, sync=False)
        with pytest.raises(PermissionError, match=storage.kept.name):
            saver.save_shard(prefix, 0, arrays_of(3), overwrite=True)
        assert is_saved(prefix, 1, 1)

    def test_nor_for_one_that_came_meanwhile(self, prefix: Path, storage: NotMine) -> None:
        class Made(dict):
            def items(self):
                raise AssertionError("each is asked for")

            def __getitem__(self, name: str):
                save(prefix, 2, overwrite=True)
                storage.kept = removal_folder(prefix)
                return super().__getitem__(name)

        saver = MultiShardSaver(storage, sync=False)
        arrays = types.MappingProxyType(Made(arrays_of(3)))
        with pytest.raises(PermissionError, match="removal"):
            saver.save_shard(prefix, 0, arrays, overwrite=True)
        assert is_saved(prefix, 2, 2)

    @pytest.mark.parametrize(
        ("mode", "expected"), [(0o775, 0o775), (0o2777, 0o777), (0o755, 0o755), (0o1777, 0o755)]
    )
    def test_who_may_write_to_the_directory_may_finish_it(
        self, tmp_path: Path, prefix: Path, monkeypatch, mode: int, expected: int
    ) -> None:
        """But where only owners remove what is theirs, nobody else could finish it."""
        prefix.parent.chmod(mode)
        umask = os.umask(0o022)
        try:
            monkeypatch.setattr(LocalStorage, "rename", lambda *_, **__: kill())
            monkeypatch.setattr(LocalStorage, "remove_directory", lambda *_: False)
            with pytest.raises(Killed):
                prune(tmp_path, keep=1)
        finally:
            os.umask(umask)
        (folder,) = prefix.parent.glob(".shardproof*")
        assert folder.stat().st_mode & 0o1777 == expected
        assert folder.stat().st_gid == prefix.parent.stat().st_gid

    def test_what_a_list_lets_one_user_do_is_no_groups_right(self, tmp_path: Path) -> None:
        entries = (0x01, 7, -1), (0x02, 7, 1234), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1)
        packed = b"".join(struct.pack("<HHi", *entry) for entry in entries)
        try:
            os.setxattr(tmp_path, "system.posix_acl_access", struct.pack("<I", 2) + packed)
        except OSError as error:
            pytest.skip(f"no such lists here: {error}")
        assert tmp_path.stat().st_mode & 0o777 == 0o775
        umask = os.umask(0o022)
        try:
            with LocalStorage().holding(str(tmp_path)) as held:
                held.make_directories(str(tmp_path / "folder"))
        finally:
            os.umask(umask)
        assert (tmp_path / "folder").stat().st_mode & 0o777 == 0o755


class TestWhatKillsLeft:
    def test_a_shard_that_came_too_late(self, tmp_path: Path) -> None:
        """Its saver was killed when somebody else had committed."""
        prefix = tmp_path / "1" / "model"
        save(prefix, 1)
        late = prefix.parent / new_own_name(prefix.name, "pending")
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
        in_its_gate(tmp_path / "1" / "model", "seal").touch()
        assert prune(tmp_path, keep=1) == [str(tmp_path / "1" / "model")]
        assert os.listdir(tmp_path / "1") == []

    def test_a_file_that_was_begun(self, tmp_path: Path) -> None:
        save(tmp_path / "1" / "model", 1)
        begin_and_die(tmp_path / "1" / "f")
        assert len(own_names(tmp_path)) == 1
        prune(tmp_path)
        assert own_names(tmp_path) == []
