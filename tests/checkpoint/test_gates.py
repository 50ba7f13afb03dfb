"""The gate of a prefix: found by one look, made and removed by whoever needs it."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from shardproof.checkpoint import (
    FsspecStorage,
    LocalStorage,
    MultiShardSaver,
    latest_checkpoint,
    prune,
)
from shardproof.checkpoint.format._layout import gate_name, new_own_name
from shardproof.checkpoint.storage._storage import Direct
from shardproof.errors import CheckpointError
from shardproof.testing.faults import FileSystemFaults


@pytest.fixture(autouse=True)
def _no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "1" / "model"


def save(
    prefix: Path, storage: LocalStorage | None = None, *, step: int = 1, overwrite: bool = False
) -> None:
    saver = MultiShardSaver(storage, sync=False)
    saver.save_shard(prefix, 0, {"w": np.zeros(3)}, overwrite=overwrite)
    saver.save_metadata(prefix, world_size=1, step=step)


def gate_of(prefix: Path) -> Path:
    return prefix.parent / gate_name(prefix.name)


def names(prefix: Path) -> list[str]:
    return sorted(os.listdir(prefix.parent))


WHOLE = ["model.metadata.json", "model_shard_0.shard"]


def test_it_is_there_while_a_checkpoint_is_made(prefix: Path) -> None:
    seen = []

    class Watched(LocalStorage):
        def open(self, path: str):
            seen.append(gate_of(prefix).is_dir())
            return super().open(path)

    save(prefix, Watched())
    assert True in seen
    assert names(prefix) == WHOLE


class Removed(LocalStorage):
    """Somebody leaves the gate right after it was made, so many times, and removes it as empty."""

    def __init__(self, n_times: int) -> None:
        self.left = n_times

    def make_folder(self, path: str) -> None:
        super().make_folder(path)
        if self.left:
            os.rmdir(path)
            self.left -= 1


def test_who_finds_it_gone_makes_it_anew(tmp_path: Path, prefix: Path) -> None:
    save(prefix, Removed(3))
    assert names(prefix) == WHOLE
    save(tmp_path / "2" / "model", step=2)
    assert prune(tmp_path, keep=1, storage=Removed(3)) == [str(prefix)]
    assert names(prefix) == []


def test_nobody_tries_for_ever(tmp_path: Path, prefix: Path) -> None:
    with pytest.raises(CheckpointError, match="another attempt saves a checkpoint"):
        save(prefix, Removed(10**9))
    save(prefix)
    save(tmp_path / "2" / "model", step=2)
    assert prune(tmp_path, keep=1, storage=Removed(10**9)) == []
    assert names(prefix) == WHOLE


def test_one_that_a_kill_left_is_used_and_removed(tmp_path: Path, prefix: Path) -> None:
    gate_of(prefix).mkdir(parents=True)
    gate_of(prefix.with_name("beside")).mkdir()
    save(prefix)
    assert names(prefix) == WHOLE
    gate_of(prefix).mkdir()
    other = gate_of(prefix.with_name("other"))
    other.mkdir()
    (tmp_path / "empty").mkdir()
    gate_of(tmp_path / "empty" / "model").mkdir()
    assert prune(tmp_path) == []
    assert names(prefix) == WHOLE
    assert os.listdir(tmp_path / "empty") == []


def test_a_link_in_its_place_is_not_followed(tmp_path: Path, prefix: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    seal = os.path.basename(new_own_name("model", "seal"))
    (home / seal).write_bytes(b"precious")
    save(prefix)
    gate_of(prefix).symlink_to(home)
    saver = MultiShardSaver(sync=False)
    saver.save_shard(prefix, 0, {"w": np.ones(3)}, overwrite=True)
    with pytest.raises(NotADirectoryError) as error:
        saver.save_metadata(prefix, world_size=1)
    assert error.value.filename == str(gate_of(prefix))
    prune(tmp_path)
    assert (home / seal).read_bytes() == b"precious"
    assert os.listdir(home) == [seal]


def test_a_file_in_its_place_is_told(prefix: Path) -> None:
    save(prefix)
    gate_of(prefix).write_bytes(b"precious")
    saver = MultiShardSaver(sync=False)
    saver.save_shard(prefix, 0, {"w": np.ones(3)}, overwrite=True)
    with pytest.raises(NotADirectoryError) as error:
        saver.save_metadata(prefix, world_size=1)
    assert error.value.filename == str(gate_of(prefix))
    assert gate_of(prefix).read_bytes() == b"precious"


@pytest.mark.parametrize(("mode", "expected"), [(0o775, 0o775), (0o755, 0o755), (0o1777, 0o755)])
def test_who_may_write_to_the_directory_may_use_it(
    prefix: Path, monkeypatch, mode: int, expected: int
) -> None:
    prefix.parent.mkdir()
    prefix.parent.chmod(mode)
    monkeypatch.setattr(LocalStorage, "remove_directory", lambda *_: False)
    umask = os.umask(0o022)
    try:
        save(prefix)
    finally:
        os.umask(umask)
    assert gate_of(prefix).stat().st_mode & 0o1777 == expected


@pytest.mark.parametrize("call", ["mkdir", "scandir"])
def test_one_that_can_not_be_seen_or_made_is_told(prefix: Path, call: str) -> None:
    saver = MultiShardSaver(sync=False)
    saver.save_shard(prefix, 0, {"w": np.zeros(3)})
    if call == "scandir":
        gate_of(prefix).mkdir()
    with FileSystemFaults(prefix.parent) as fs:
        fs.fail(call, errno.EIO, match="*-gate", times=None)
        with pytest.raises(OSError, match="Input/output error"):  # noqa: PT012 - either of them
            saver.save_shard(prefix, 1, {"w": np.zeros(3)})
            saver.save_metadata(prefix, world_size=1)
    assert not prefix.with_name("model.metadata.json").exists()


def test_what_was_left_beside_the_shards_goes_too(tmp_path: Path, prefix: Path) -> None:
    """There it was before there were gates."""
    for step, path in enumerate((prefix, tmp_path / "2" / "model")):
        save(path, step=step)
    seal, removal = (
        prefix.parent / os.path.basename(new_own_name("model", kind))
        for kind in ("seal", "removal")
    )
    seal.touch()
    removal.mkdir()
    os.rename(prefix.with_name("model.metadata.json"), removal / "model.metadata.json.pruned")
    assert prune(tmp_path, keep=1) == [str(prefix)]
    assert names(prefix) == [seal.name]
    save(prefix, step=3)
    assert names(prefix) == WHOLE
    removal.mkdir()
    save(prefix, step=3, overwrite=True)
    assert names(prefix) == WHOLE


PROTOCOL = (
    *("url", "open", "writer", "write", "list", "move", "remove"),
    *("make_directories", "sweep"),
)


def test_a_storage_of_ones_own_needs_no_more_than_its_protocol() -> None:
    """One without `look_up` is asked for lists."""
    inner = FsspecStorage.from_url("memory://")
    storage = type("Plain", (), {name: staticmethod(getattr(inner, name)) for name in PROTOCOL})()
    assert not isinstance(storage, Direct)
    prefix = "memory://gates/1/model"
    saver = MultiShardSaver(storage)
    for _ in range(2):
        saver.save_shard(prefix, 0, {"w": np.zeros(3)}, overwrite=True)
        saver.save_metadata(prefix, world_size=1)
    assert latest_checkpoint("memory://gates", storage=storage) == "memory:///gates/1/model"
    with pytest.raises(CheckpointError, match="already"):
        saver.save_shard(prefix, 0, {"w": np.zeros(3)})


class TestLookUp:
    @pytest.mark.parametrize("is_held", [False, True])
    def test_local(self, tmp_path: Path, is_held: bool) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "f").touch()
        (tmp_path / "l").symlink_to(tmp_path / "d")
        (tmp_path / "nowhere").symlink_to(tmp_path / "x")
        storage = LocalStorage()
        with storage.holding(str(tmp_path / ("." if is_held else "missing"))) as held:
            found = {
                name: held.look_up(str(tmp_path / name))
                for name in ("d", "d/f", "l", "nowhere", "x", "x/y")
            }
        expected = {"d": True, "d/f": False, "l": False, "nowhere": False, "x": None, "x/y": None}
        assert found == expected

    def test_what_could_not_be_looked_at_is_not_missing(self, tmp_path: Path) -> None:
        with FileSystemFaults(tmp_path) as fs:
            fs.fail("stat", errno.EIO, match="*/f", times=None)
            with pytest.raises(OSError, match="Input/output error") as error:
                LocalStorage().look_up(str(tmp_path / "f"))
        assert error.value.filename == str(tmp_path / "f")

    def test_elsewhere(self) -> None:
        storage = FsspecStorage.from_url("memory://")
        storage.write("memory:///looked/d/f", b"x", sync=False)
        found = [storage.look_up(f"memory:///looked/{name}") for name in ("d", "d/f", "x")]
        assert found == [True, False, None]
