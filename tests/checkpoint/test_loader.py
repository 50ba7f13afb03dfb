"""Loading: what is returned, into what, and what is refused before anything is returned."""

import asyncio
import errno
import os
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from shardproof import CheckpointError, CheckpointNotFoundError, MultiShardLoader, MultiShardSaver
from shardproof.checkpoint.storage import _filling
from tests.helpers.checkpoint_files import (
    flip,
    metadata_of,
    metadata_path,
    same,
    shard_path,
    signed,
)
from tests.helpers.saving import saved

RNG = np.random.default_rng(3)
ARRAYS = [
    {"a": RNG.random((5, 3)), "b": RNG.integers(0, 9, 7)},
    {"c": RNG.random((4, 2), np.float32), "e": np.zeros((0, 2)), "s": np.array(2.5)},
]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return saved(tmp_path / "model", ARRAYS)


def offset(prefix: Path, rank: int, name: str) -> int:
    tensors = MultiShardLoader().load_metadata(prefix).shards[rank].tensors
    return next(tensor.offset for tensor in tensors if tensor.name == name)


@pytest.mark.parametrize("level", ["valid", "complete"])
@pytest.mark.parametrize("workers", [None, 1, 5])
def test_all_of_it_comes_back(prefix: Path, level: str, workers: int | None) -> None:
    loader = MultiShardLoader(level=level, workers=workers)
    shards = loader.load_all_shards(prefix)
    assert [same(*pair) for pair in zip(shards, ARRAYS, strict=True)] == [True, True]
    assert same(loader.load_shard(prefix, 1), ARRAYS[1])
    assert same(loader.load_tensors(prefix), ARRAYS[0] | ARRAYS[1])
    assert same(dict(loader.iter_tensors(prefix)), ARRAYS[0] | ARRAYS[1])
    shards[0]["a"][0, 0] = 1.0  # it is the caller's


@pytest.mark.parametrize("load", [MultiShardLoader.load_all_shards, MultiShardLoader.load_tensors])
def test_shards_are_read_at_once(prefix: Path, load, monkeypatch) -> None:
    before = {*threading.enumerate()}
    real, barrier, met = os.preadv, threading.Barrier(2), set()

    def preadv(*arguments) -> int:
        """Let none of the threads that load read on before another does."""
        thread = threading.current_thread()
        if thread.name.startswith("shardproof-load") and thread not in met:
            met.add(thread)
            barrier.wait(30)
        return real(*arguments)

    monkeypatch.setattr(os, "preadv", preadv)
    load(MultiShardLoader(workers=1), prefix)
    assert not met
    load(MultiShardLoader(workers=2), prefix)
    assert len(met) == 2
    assert {*threading.enumerate()} <= before


def test_a_digest_shares_the_processors_with_other_shards(tmp_path: Path, monkeypatch) -> None:
    arrays = [{"w": np.zeros(2**19)}] * 2
    prefix = saved(tmp_path / "m", arrays, algorithm="sha256-tree")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    n_threads, in_threads = [], _filling.fanout.in_threads

    def counting(*args, **how):
        n_threads.append(how["n_threads"])
        return in_threads(*args, **how)

    monkeypatch.setattr(_filling.fanout, "in_threads", counting)
    MultiShardLoader(workers=2).load_all_shards(prefix)
    assert n_threads == [1, 1]
    MultiShardLoader(workers=2).load_shard(prefix, 0)
    assert n_threads[2:] == [2]
    MultiShardLoader(workers=1).load_all_shards(prefix)
    assert n_threads[3:] == [2, 2]


def test_the_same_in_coroutines(prefix: Path) -> None:
    before = {*threading.enumerate()}

    async def load() -> list:
        loader = MultiShardLoader()
        return await asyncio.gather(
            loader.load_shard_async(prefix, 1),
            loader.load_all_shards_async(prefix),
            loader.load_tensors_async(prefix, ["c"]),
            loader.load_tensors_async(prefix, ["c"], mapped=True),
            loader.load_metadata_async(prefix),
        )

    one, every, some, mapped, metadata = asyncio.run(load())
    assert metadata == MultiShardLoader().load_metadata(prefix)
    assert same(one, ARRAYS[1])
    assert same(every[0], ARRAYS[0])
    assert same(some, {"c": ARRAYS[1]["c"]})
    assert same(mapped, some)
    assert not mapped["c"].flags.writeable
    assert {*threading.enumerate()} <= before


class TestWhatToType:
    def test_of_a_directory(self, tmp_path: Path) -> None:
        prefix = saved(tmp_path / "run" / "step_100" / "model", ARRAYS)
        for path in (prefix.parent, prefix.parent.parent):
            with pytest.raises(CheckpointNotFoundError) as caught:
                MultiShardLoader().load_tensors(path, ["a"])
            assert str(caught.value) == (
                f"Checkpoint file '{path}.metadata.json': there is no such file; "
                f"expected a prefix, found a directory: give '{prefix}'"
            )

    def test_of_a_directory_of_many(self, tmp_path: Path) -> None:
        for n in range(5):
            saved(tmp_path / f"step_{n}" / "model", ARRAYS)
        with pytest.raises(CheckpointNotFoundError) as caught:
            MultiShardLoader().load_shard(tmp_path, 0)
        assert str(caught.value).endswith(
            f"give '{tmp_path}/step_0/model' or '{tmp_path}/step_1/model' or "
            f"'{tmp_path}/step_2/model' (or another of 5)"
        )

    def test_of_a_metadata_file(self, prefix: Path) -> None:
        with pytest.raises(CheckpointNotFoundError) as caught:
            MultiShardLoader().load_shard(f"{prefix}.metadata.json", 0)
        assert str(caught.value).endswith(f"found the name of a metadata file: give '{prefix}'")

    def test_of_what_was_saved_in_part(self, tmp_path: Path) -> None:
        path = tmp_path / "step" / "model"
        MultiShardSaver().save_shard(path, 0, ARRAYS[0])
        for asked in (path, path.parent):
            with pytest.raises(CheckpointNotFoundError, match=r"unfinished step .*: 1 shard"):
                MultiShardLoader().load_shard(asked, 0)

    @pytest.mark.parametrize("kind", ["none", "empty", "file"])
    def test_of_nothing(self, tmp_path: Path, kind: str) -> None:
        if kind == "empty":
            (tmp_path / "x").mkdir()
        elif kind == "file":
            (tmp_path / "x").touch()
        with pytest.raises(CheckpointNotFoundError, match=r"there is no such file$") as caught:
            MultiShardLoader().load_shard(tmp_path / "x", 0)
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.path == f"{tmp_path}/x.metadata.json"

    def test_where_nobody_can_look(self, tmp_path: Path, make_shard_faults) -> None:
        saved(tmp_path / "step" / "model", ARRAYS)
        make_shard_faults(tmp_path).fail("scandir", errno.EIO)
        with pytest.raises(CheckpointNotFoundError, match=r"there is no such file$"):
            MultiShardLoader().load_shard(tmp_path / "step", 0)


class TestSomeTensors:
    def test_only_what_is_asked_for_is_looked_at(self, prefix: Path) -> None:
        flip(shard_path(prefix, 1), offset(prefix, 1, "c"))
        loader = MultiShardLoader()
        assert same(loader.load_tensors(prefix, ["s"]), {"s": ARRAYS[1]["s"]})
        with pytest.raises(CheckpointError, match="tensor 'c': expected xxh3-128:"):
            loader.load_tensors(prefix, ["c"])

    def test_without_a_digest_of_its_own_the_whole_shard_is_proven(self, prefix: Path) -> None:
        said = metadata_of(prefix)
        for tensor in said["shards"][1]["tensors"]:
            tensor["digest"] = None
        metadata_path(prefix).write_bytes(signed(said))
        assert same(MultiShardLoader().load_tensors(prefix, ["s"]), {"s": ARRAYS[1]["s"]})
        flip(shard_path(prefix, 1), offset(prefix, 1, "c"))
        with pytest.raises(CheckpointError, match="expected data with the checksum"):
            MultiShardLoader().load_tensors(prefix, ["s"])

    def test_one_that_is_nowhere_or_twice_is_an_error_that_names_all(self, tmp_path: Path) -> None:
        prefix = saved(tmp_path / "m", [{"a": np.ones(1), "b": np.ones(1)}, {"b": np.ones(1)}])
        with pytest.raises(CheckpointError) as caught:
            MultiShardLoader().load_tensors(prefix, ["b", "x", "y", "a"])
        assert "in no shard: 'x', 'y' and some in several shards: 'b'" in str(caught.value)
        assert f"{prefix}.metadata.json" in str(caught.value)
        with pytest.raises(CheckpointError, match="in several shards: 'b'"):
            MultiShardLoader().load_tensors(prefix)
        assert list(MultiShardLoader().load_tensors(prefix, ["a"])) == ["a"]

    def test_one_name_instead_of_a_list_is_refused(self, prefix: Path) -> None:
        with pytest.raises(TypeError, match="names: expected a list of names"):
            MultiShardLoader().load_tensors(prefix, "a")


class TestMapped:
    @pytest.mark.parametrize("level", ["valid", "complete"])
    def test_they_are_the_files(self, prefix: Path, level: str) -> None:
        found = MultiShardLoader(level=level).load_tensors(prefix, mapped=True)
        assert same(found, ARRAYS[0] | ARRAYS[1])
        assert not found["a"].flags.writeable
        assert found["a"].ctypes.data % 64 == 0
        shard_path(prefix, 0).unlink()
        assert same(found, ARRAYS[0] | ARRAYS[1])

    def test_they_are_proven(self, prefix: Path) -> None:
        flip(shard_path(prefix, 1), offset(prefix, 1, "c"))
        with pytest.raises(CheckpointError, match="tensor 'c': expected"):
            MultiShardLoader().load_tensors(prefix, mapped=True)

    def test_not_together_with_given_arrays(self, prefix: Path) -> None:
        with pytest.raises(ValueError, match="expected mapped or out"):
            MultiShardLoader().load_tensors(prefix, out={"a": np.zeros((5, 3))}, mapped=True)

    def test_only_of_local_files(self) -> None:
        prefix = saved("memory://mapped/model", ARRAYS)
        with pytest.raises(ValueError, match="mapped: expected a local file, found 'memory://"):
            MultiShardLoader().load_tensors(prefix, mapped=True)


def test_a_type_that_numpy_lacks_without_ml_dtypes(tmp_path: Path, monkeypatch) -> None:
    array = np.array([1.5, -2.0, 0.0], ml_dtypes.bfloat16)
    prefix = saved(tmp_path / "m", [{"w": array}])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert same(MultiShardLoader().load_shard(prefix, 0), {"w": array.view(np.uint16)})


class TestRefused:
    def test_a_rank_that_is_none(self, prefix: Path) -> None:
        with pytest.raises(IndexError, match="rank: expected 0 to 1, found 2"):
            MultiShardLoader().load_shard(prefix, 2)
        with pytest.raises(IndexError, match="found -1"):
            MultiShardLoader().load_shard(prefix, -1)

    def test_one_that_becomes_shorter_while_it_is_read(self, prefix: Path, monkeypatch) -> None:
        real = os.preadv

        def preadv(fd: int, buffers: list, at: int) -> int:
            return 0 if at > 100 else real(fd, buffers, at)

        monkeypatch.setattr(os, "preadv", preadv)
        with pytest.raises(CheckpointError, match="it became shorter while it was read"):
            MultiShardLoader().load_shard(prefix, 0)

    def test_a_disk_that_fails(self, prefix: Path, monkeypatch) -> None:
        def preadv(*_):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "preadv", preadv)
        with pytest.raises(CheckpointError, match=r"it can't be read at 0: .*Input/output"):
            MultiShardLoader().load_metadata(prefix)

    def test_a_digest_that_can_t_be_computed_here(self, tmp_path: Path, monkeypatch) -> None:
        prefix = saved(tmp_path / "m", [{"w": np.ones(3)}], algorithm="blake3")
        monkeypatch.setitem(sys.modules, "blake3", None)
        with pytest.raises(CheckpointError, match="it can't be proven: blake3 needs the package"):
            MultiShardLoader().load_shard(prefix, 0)
        assert MultiShardLoader().load_tensors(prefix)["w"].tolist() == [1, 1, 1]

    def test_wrong_arguments(self) -> None:
        with pytest.raises(ValueError, match="workers: expected 1 or more"):
            MultiShardLoader(workers=0)
        with pytest.raises(ValueError, match="framework"):
            MultiShardLoader(framework="jax")
        for level in ("present", "vaild"):
            with pytest.raises(ValueError, match="level: expected 'complete' or 'valid'"):
                MultiShardLoader(level=level)
        with pytest.raises(TypeError, match="storage"):
            MultiShardLoader(storage="s3://bucket")


def test_torch_s_tensors_are_asked_for_where_it_is_not_installed(prefix, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError):
        MultiShardLoader(framework="torch").load_shard(prefix, 0)
