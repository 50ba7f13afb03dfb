"""What a storage of checkpoints must do."""

import errno
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
from shardproof.errors import CheckpointError
from shardproof.testing.faults import FileSystemFaults

PROTOCOL = (
    *("url", "open", "list", "look_up", "modified", "writer", "write", "remove"),
    *("make_directories", "sweep"),
)


def test_a_storage_of_ones_own_needs_no_more_than_its_protocol() -> None:
    inner = FsspecStorage.from_url("memory://")
    storage = type("Plain", (), {name: staticmethod(getattr(inner, name)) for name in PROTOCOL})()
    prefix = "memory://stored/1/model"
    saver = MultiShardSaver(storage)
    for _ in range(2):
        saver.save_shard(prefix, 0, {"w": np.zeros(3)}, overwrite=True)
        saver.save_metadata(prefix, world_size=1)
    assert latest_checkpoint("memory://stored", storage=storage) == "memory:///stored/1/model"
    saver.save_shard("memory://stored/2/model", 0, {"w": np.zeros(3)})
    saver.save_metadata("memory://stored/2/model", world_size=1, step=2)
    assert prune("memory://stored", keep=1, storage=storage) == ["memory:///stored/1/model"]
    prefix = "memory://stored/2/model"
    with pytest.raises(CheckpointError, match="already"):
        saver.save_shard(prefix, 0, {"w": np.zeros(3)})


class TestLookUp:
    def test_local(self, tmp_path: Path) -> None:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "f").touch()
        (tmp_path / "l").symlink_to(tmp_path / "d")
        (tmp_path / "nowhere").symlink_to(tmp_path / "x")
        names = ("d", "d/f", "l", "nowhere", "x", "x/y")
        found = {name: LocalStorage().look_up(str(tmp_path / name)) for name in names}
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
