"""The contracts with each of the loaders, and what one pass over a damaged directory gives.

`outcomes` runs this file in a process of its own; most of it fails, and that is what it is for.
"""

import functools
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from shardproof.testing import Layout, ShardState
from shardproof.testing.contracts import (
    ResumableLoaderContract,
    SeededLoaderContract,
    ShardLoaderContract,
)
from tests.peers import loaders

_WHOLE = Layout(n_shards=4, d_model=64)
_LARGE = Layout(n_shards=4, examples_per_shard=512, d_model=64)  # 1 MiB a shard
_DAMAGE = [state for state in ShardState if state is not ShardState.OK]
_CUTS = {
    "vanishes": os.unlink,
    "loses its second half": lambda shard: os.truncate(shard, shard.stat().st_size // 2),
    "loses all its bytes": lambda shard: os.truncate(shard, 0),
}


class _Peer:
    """Besides the contract: what one pass gives. Whatever that is, it is no failure."""

    deadline = 15.0

    @pytest.fixture
    def open_seeded_loader(self, open_loader):
        return open_loader

    @pytest.mark.parametrize("state", _DAMAGE, ids=str)
    def test_one_pass(self, state, record_property) -> None:
        path = self.new_dir(_WHOLE).path
        whole = self.look(lambda: self.deliver(path)).value
        damaged, shards = self.new_dir(_with_second(state))
        outcome = self.look(lambda: self.deliver(damaged))
        _tell(record_property, outcome, whole, shards[1:2])

    @pytest.mark.parametrize("cut", _CUTS)
    def test_one_pass_cut(self, cut, record_property) -> None:
        path, shards = self.new_dir(_LARGE)
        whole = self.look(lambda: self.deliver(path)).value

        def cut_after_the_first_sample() -> list[str]:
            with self.opened(path) as loader:
                run = map(self.fingerprint, self.samples(loader))
                first = next(run)
                for shard in shards:
                    _CUTS[cut](shard)
                return [first, *run]

        _tell(record_property, self.look(cut_after_the_first_sample), whole, shards)


def _with_second(state: ShardState) -> Layout:
    third = state if state is ShardState.SWAPPED else ShardState.OK
    return _WHOLE.replace((ShardState.OK, state, third, ShardState.OK))


def _tell(record_property, outcome, whole: list[str], shards: list[Path]) -> None:
    record_property("gave", _gave(outcome, whole, shards))
    if outcome.error:
        record_property("says", f"{outcome.error.kinds[0]}: {outcome.error.text}")


def _gave(outcome, whole: list[str], shards: list[Path]) -> str:
    if outcome.exceeded:
        return "hang"
    if outcome.killed_by:
        return outcome.killed_by
    if outcome.error:
        return "names it" if any(str(shard) in outcome.error.text for shard in shards) else "error"
    if outcome.value == whole:
        return "right"
    found, expected = Counter(outcome.value), Counter(whole)
    if found == expected:
        return "order"
    return "fewer" if found <= expected else "other"


class TestFromFile(_Peer, ShardLoaderContract):
    @pytest.fixture
    def open_loader(self):
        return loaders.FromFile


class TestMemmap(_Peer, SeededLoaderContract):
    num_workers = 0

    def samples(self, loader):
        return (sample for batch in loader for sample in batch)

    @pytest.fixture
    def open_loader(self):
        return functools.partial(loaders.open_memmap, num_workers=self.num_workers)


class TestMemmapWorkers(TestMemmap):
    num_workers = 2


class _MDS(_Peer):
    write_dir = staticmethod(loaders.write_mds)
    shard_files = staticmethod(loaders.mds_files)

    def look(self, function, tried="", *, looks=1):
        """Streaming removes its shared memory when a process exits; a look's child is killed."""
        try:
            return super().look(function, tried, looks=looks)
        finally:
            _remove_shared_memory_and_locks()


def _remove_shared_memory_and_locks() -> None:
    """Those that belong to directories below this run's own temporary one."""
    temporary = Path(tempfile.gettempdir())
    for told in Path("/dev/shm").glob("[0-9]*_locals"):  # it holds the directory's path
        if bytes(temporary) in told.read_bytes():
            for path in told.parent.glob(told.name.replace("locals", "*")):
                path.unlink()
    for path in temporary.glob("[0-9]*_filelock"):
        path.unlink()


class TestStreaming(_MDS, SeededLoaderContract, ResumableLoaderContract):
    @pytest.fixture
    def open_loader(self):
        return loaders.open_mds


class TestStreamingHash(_MDS, ShardLoaderContract):
    @pytest.fixture
    def open_loader(self):
        return functools.partial(loaders.open_mds, validate_hash="xxh64")


class TestStreamingCache(_MDS, ShardLoaderContract):
    @pytest.fixture
    def open_loader(self):
        return loaders.open_mds_cache


class TestStreamingCacheHash(_MDS, ShardLoaderContract):
    @pytest.fixture
    def open_loader(self):
        return functools.partial(loaders.open_mds_cache, validate_hash="xxh64")


class TestLitData(_Peer, SeededLoaderContract, ResumableLoaderContract):
    write_dir = staticmethod(loaders.write_litdata)
    shard_files = staticmethod(loaders.litdata_files)

    @pytest.fixture
    def open_loader(self):
        return loaders.open_litdata


class TestWebDataset(_Peer, SeededLoaderContract):
    write_dir = staticmethod(loaders.write_webdataset)
    shard_files = staticmethod(loaders.webdataset_files)

    @pytest.fixture
    def open_loader(self):
        return loaders.open_webdataset
