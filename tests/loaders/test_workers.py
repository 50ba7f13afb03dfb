"""How many threads read: as many as help, unless a number is given."""

import pytest

from shardproof import OrderedDataLoader, ShuffledDataLoader
from shardproof._base.mounts import mount_of
from shardproof.loaders.io import _read_ahead
from shardproof.loaders.io._read_ahead import threads_that_help
from shardproof.loaders.order._epoch_plan import EpochPosition
from tests.helpers.descriptors import needs_proc


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=4, examples_per_shard=6)


@pytest.mark.parametrize(("n_cpus", "expected"), [(1, 2), (2, 2), (6, 6), (64, 8)])
def test_one_for_each_processor_within_limits(n_cpus, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(_read_ahead, "available_cpus", lambda: n_cpus)
    monkeypatch.setattr(_read_ahead, "mount_of", lambda _: ("ext4",))
    assert threads_that_help(str(tmp_path)) == expected


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.s3fs"])
def test_reads_that_wait_for_a_network_wait_together(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(_read_ahead, "available_cpus", lambda: 1)
    monkeypatch.setattr(_read_ahead, "mount_of", lambda _: (kind,))
    assert threads_that_help(str(tmp_path)) == 8


@needs_proc
def test_the_file_system_of_a_directory():
    assert mount_of("/proc")[0] == "proc"


@pytest.mark.parametrize("make", [OrderedDataLoader, ShuffledDataLoader])
@pytest.mark.parametrize(("workers", "alone", "of_three"), [(None, 6, 2), (5, 5, 5)])
def test_worker_processes_share_what_nobody_asked_for(
    make, workers, alone, of_three, path, monkeypatch
):
    monkeypatch.setattr(_read_ahead, "available_cpus", lambda: 6)
    monkeypatch.setattr(_read_ahead, "mount_of", lambda _: ("ext4",))
    loader = make(path, layer=6, batch_size=1, workers=workers)
    assert f"workers={workers}" in repr(loader)
    assert loader._n_threads == alone
    assert loader.of_worker(0, 3, EpochPosition(0))._n_threads == of_three
