"""Shards that are closed, or whose process is forked, while another thread reads from them."""

import contextlib
import os
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from shardproof import IndexedDataset, OrderedDataLoader
from shardproof.loaders.io import _file_pool, _open_shards, _submissions
from shardproof.loaders.io._open_shards import OpenShards
from shardproof.loaders.io._row_source import RowSource
from shardproof.loaders.io._submissions import Submissions, open_submissions
from shardproof.testing.contracts._child import run_in_child
from tests.helpers.descriptors import path_of
from tests.helpers.forking import returned

PATIENCE = 30.0


class Held:
    """A thread that reads from a dataset, and stands still before calls of some kind."""

    def __init__(self, dataset: IndexedDataset, key: Any) -> None:
        self._is_there, self._may_go = threading.Event(), threading.Event()
        self._dataset, self.key = dataset, key
        self.found: list[np.ndarray] = []
        self._thread = threading.Thread(target=self._read)

    def before(self, monkeypatch, where: object, name: str) -> None:
        call = getattr(where, name)

        def later(*args, **keywords):
            if threading.current_thread() is self._thread:
                self._is_there.set()
                assert self._may_go.wait(PATIENCE)
            return call(*args, **keywords)

        monkeypatch.setattr(where, name, later)

    def _read(self) -> None:
        self.found.append(self._dataset[self.key]["act"].copy())

    def __enter__(self) -> "Held":
        self._thread.start()
        assert self._is_there.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self._may_go.set()
        self._thread.join()


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=1, examples_per_shard=200)


@pytest.fixture
def queues(monkeypatch):
    """The kernel's queues that are opened; none, where it offers none."""
    found = weakref.WeakSet()

    def noted():
        queue = open_submissions()
        found.update([queue] if queue is not None else [])
        return queue

    monkeypatch.setattr(_submissions, "queues", _submissions.Queues())
    monkeypatch.setattr(_submissions, "open_submissions", noted)
    return found


@pytest.fixture
def opened(monkeypatch):
    """What was opened, which so ends by being closed and not by being dropped."""
    found: list[OpenShards] = []
    real = RowSource.open
    monkeypatch.setattr(RowSource, "open", lambda *each: found.append(real(*each)) or found[-1])
    return found


@pytest.fixture
def other(path):
    """A directory with a shard of the same name, whose rows are all the same."""
    other = path.parent / "other"
    other.mkdir()
    shard = other / "acts000000.bin"
    shard.write_bytes(b"\1" * os.path.getsize(path / shard.name))
    return other


def open_below(path) -> list[str]:
    found = []
    for fd in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the one that listed them, which is no more
            found.append(path_of(fd))
    return [each for each in found if each.startswith(str(path))]


def hold(how: str, dataset: IndexedDataset, monkeypatch) -> Held:
    held = Held(dataset, 5 if how != "queue" else range(0, 400, 2))
    if how == "directory":
        held.before(monkeypatch, _file_pool, "open_inside")
    if how == "queue":
        held.before(monkeypatch, Submissions, "read")
        held.before(monkeypatch, _open_shards, "read_singly")  # where the kernel offers none
    held.before(monkeypatch, os, "preadv")
    return held


@pytest.mark.parametrize("how", ["file", "queue", "directory"])
@pytest.mark.parametrize("n_reads_before", [0, 1])
def test_a_read_during_which_it_is_closed_ends_right(
    how, n_reads_before, path, other, queues, monkeypatch
):
    """What it uses is closed after it, and no file that is opened meanwhile has its number."""
    dataset = IndexedDataset(path, layer=6)
    held = hold(how, dataset, monkeypatch)
    expected = IndexedDataset(path, layer=6)[held.key]["act"]
    queues.clear()
    for _ in range(n_reads_before * (how != "directory")):
        dataset[held.key]
    with held:
        dataset.close()
        decoy = other if how == "directory" else other / "acts000000.bin"
        fds = [os.open(decoy, os.O_RDONLY) for _ in range(8)]
        known = [os.fstat(fd) for fd in fds]
        assert all(queue.is_open for queue in queues)
    assert np.array_equal(held.found, [expected])
    assert [os.fstat(fd) for fd in fds] == known  # nothing was closed twice
    for fd in fds:
        os.close(fd)
    assert open_below(path) == []
    queues.clear()
    assert np.array_equal(dataset[held.key]["act"], expected)
    dataset.close()
    assert open_below(path) == []
    assert not any(queue.is_open for queue in queues)


def test_an_iteration_is_dropped_in_a_process_forked_while_a_thread_held_a_lock(path, opened):
    iterations = [iter(OrderedDataLoader(path, layer=6, batch_size=8))]
    next(iterations[0])
    with opened[0]._lock:
        assert returned(run_in_child(iterations.clear, deadline=PATIENCE)) is None
    iterations.clear()
