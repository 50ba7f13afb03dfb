"""The further threads of a dataset, which are there from the first use until it is closed."""

import collections
import contextlib
import gc
import os
import threading
import weakref

import numpy as np
import pytest

from shardproof import IndexedDataset
from shardproof.loaders.io import _read_ahead
from shardproof.loaders.io._crew import Helpers
from shardproof.loaders.io._memory import BufferPool
from shardproof.loaders.io._open_shards import SharedReads
from shardproof.testing.contracts._child import run_in_child
from tests.helpers.forking import returned
from tests.helpers.waiting import until

PATIENCE = 30.0


@pytest.fixture
def helper():
    helper = Helpers("test", 1)
    yield helper
    helper.end()


class Pieces:
    """Work that some threads share: each piece waits until all have one."""

    def __init__(self, n_threads: int) -> None:
        self.done: list[int] = []
        self._todo = collections.deque(range(2 * n_threads))
        self._all = threading.Barrier(n_threads)

    def work(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                piece = self._todo.popleft()
                self._all.wait(PATIENCE)
                self.done.append(piece)


@pytest.mark.parametrize("n_helpers", [1, 3])
def test_all_work_at_the_same_time(n_helpers):
    helpers, pieces = Helpers("test", n_helpers), Pieces(n_helpers + 1)
    helpers.share(pieces.work)
    helpers.end()
    assert sorted(pieces.done) == list(range(2 * n_helpers + 2))


def test_who_finds_it_busy_does_all_alone(helper):
    is_busy, may_go = threading.Event(), threading.Event()
    here = threading.get_ident()

    def keep_busy():
        if threading.current_thread() is not first:
            is_busy.set()
        may_go.wait(PATIENCE)

    first = threading.Thread(target=lambda: helper.share(keep_busy))
    first.start()
    assert is_busy.wait(PATIENCE)
    seen = []
    helper.share(lambda: seen.append(threading.get_ident()))
    assert seen == [here]
    may_go.set()
    first.join()


def test_an_error_of_the_helper_is_raised(helper):
    is_there = threading.Event()
    caller = threading.get_ident()

    def work():
        if threading.get_ident() == caller:
            is_there.wait(PATIENCE)
        else:
            is_there.set()
            raise ValueError("there")

    with pytest.raises(ValueError, match="there"):
        helper.share(work)


def test_after_its_end_and_in_a_forked_process_nobody_helps(helper):
    helper.share(lambda: None)
    alone = []
    in_child = run_in_child(lambda: helper.share(lambda: alone.append(1)) or alone, deadline=20)
    assert returned(in_child) == [1]
    helper.end()
    helper.share(lambda: alone.append(2))
    assert alone == [2]


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=5, examples_per_shard=200)


NUMBERS = np.random.default_rng(0).permutation(2900)


@pytest.mark.parametrize(("n_cpus", "n_helpers"), [(1, 1), (3, 2), (16, 3)])
def test_a_dataset_has_some_that_last_until_it_is_closed(path, monkeypatch, n_cpus, n_helpers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(n_cpus)), raising=False)
    monkeypatch.setattr(_read_ahead, "mount_of", lambda _: ("ext4",))
    before = threading.active_count()
    with IndexedDataset(path, layer=6) as dataset:
        for _ in range(20):
            assert dataset[NUMBERS]["example_idx"].tolist() == (NUMBERS // 3).tolist()
        # Those are gone that opened the shards.
        until(lambda: threading.active_count() == before + n_helpers)
    until(lambda: threading.active_count() == before)
    assert len(dataset[NUMBERS]["act"]) == 2900
    until(lambda: threading.active_count() == before + n_helpers)
    del dataset
    gc.collect()
    until(lambda: threading.active_count() == before)


def test_an_interrupt_does_not_wait_and_no_memory_goes_that_is_still_written_to(path, monkeypatch):
    is_there, may_go, taken = threading.Event(), threading.Event(), []
    caller, read, take = threading.get_ident(), SharedReads.next_piece, BufferPool.take

    def next_piece(shared):
        piece = read(shared)
        if threading.get_ident() == caller:
            assert is_there.wait(PATIENCE)
            raise KeyboardInterrupt
        is_there.set()
        assert may_go.wait(PATIENCE)
        return piece

    def noted(pool):
        buffer = take(pool)
        taken.append(weakref.ref(buffer.bytes))
        return buffer

    with IndexedDataset(path, layer=6) as dataset:
        expected = dataset[NUMBERS]["act"].copy()
        monkeypatch.setattr(SharedReads, "next_piece", next_piece)
        monkeypatch.setattr(BufferPool, "take", noted)
        with pytest.raises(KeyboardInterrupt):
            dataset[NUMBERS]
        monkeypatch.undo()
        gc.collect()
        assert taken[0]() is not None
        assert np.array_equal(dataset[NUMBERS]["act"], expected)
        may_go.set()
        until(lambda: taken[0]() is None)
