"""How many shards stay open, and what is done where the process may open no more files."""

import concurrent.futures
import contextlib
import errno
import itertools
import os
import resource
import threading

import numpy as np
import pytest

from shardproof import IndexedDataset, OrderedDataLoader, ShardReadError
from shardproof.loaders.io import _file_pool, _read_ahead
from shardproof.loaders.io._file_pool import FilePool
from shardproof.loaders.io._submissions import Submissions, open_submissions
from shardproof.testing.contracts._child import run_in_child
from tests.helpers.forking import returned

PATIENCE = 60.0
N_SHARDS = 200


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=N_SHARDS, examples_per_shard=1)


def n_open() -> int:
    return len(os.listdir("/dev/fd"))


def limit_to(n_files: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_files, hard))


def limited(work, n_files: int = 128):

    def here():
        limit_to(n_files)
        return work()

    return returned(run_in_child(here, deadline=PATIENCE))


def test_it_keeps_a_quarter_of_what_the_process_may_open(tmp_path):
    pool = FilePool(str(tmp_path), ())
    found = [limited(lambda: pool.most, limit) for limit in (20, 256, 1024)]
    assert found == [16, 64, 256]


def test_threads_that_open_the_directory_at_once_read_from_the_same(tmp_path, monkeypatch):
    """The later one opened what was in its place by then, and all read from that."""
    root, both, replaced = tmp_path / "shards", threading.Barrier(2), threading.Event()
    names, numbers, real = ["a", "b", "c"], itertools.count(), _file_pool.open_root

    def fill(text: str) -> None:
        root.mkdir()
        for name in names:
            (root / name).write_text(text)

    def open_root(path: str) -> int:
        both.wait(PATIENCE)
        if next(numbers):
            replaced.wait(PATIENCE)
        return real(path)

    fill("old")
    pool = FilePool(str(root), names)
    monkeypatch.setattr(_file_pool, "open_root", open_root)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        found = [executor.submit(lambda n=n: os.pread(pool.file(n).fd, 3, 0)) for n in (0, 1)]
        concurrent.futures.wait(found, PATIENCE, concurrent.futures.FIRST_COMPLETED)
        root.rename(tmp_path / "away")
        fill("new")
        replaced.set()
        assert [each.result() for each in found] == [b"old"] * 2
    assert os.pread(pool.file(2).fd, 3, 0) == b"old"


@pytest.mark.parametrize("step", [1, 7])
def test_more_shards_than_stay_open(step, path):
    """Each call reads all, those at the end first; what it opened stays within the bound."""

    def read() -> tuple[bool, int]:
        before, most = n_open(), 0
        with IndexedDataset(path, layer=6) as dataset:
            for _ in range(3):
                numbers = np.arange(len(dataset))[::-step]
                batch = dataset[numbers]
                most = max(most, n_open() - before)
            is_right = batch["example_idx"].tolist() == (numbers // 3).tolist()
        return is_right and n_open() == before, most

    is_right, most = limited(read)
    assert is_right
    assert 16 < most <= 32 + 1  # and the directory


def test_rows_of_many_shards_take_few_calls(path, monkeypatch):
    if (queue := open_submissions()) is None:
        pytest.skip("the kernel, or a sandbox, offers no io_submit(2)")
    queue.close()
    calls, read = [], Submissions.read
    monkeypatch.setattr(
        Submissions, "read", lambda *arguments: calls.append(read(*arguments)) or calls[-1]
    )
    with IndexedDataset(path, layer=6) as dataset:
        assert dataset[range(0, 3 * N_SHARDS, 3)]["example_idx"].tolist() == [*range(N_SHARDS)]
    assert len(calls) == 1


def taken_descriptors(n_left: int) -> list[int]:
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    for fd in taken[-n_left:]:
        os.close(fd)
    return taken[:-n_left]


@pytest.mark.slow
def test_where_no_more_can_be_opened_it_closes_what_nobody_reads(path):
    """Its own and those of other datasets; each row still comes."""

    def read() -> list[int]:
        with IndexedDataset(path, layer=6) as other, IndexedDataset(path, layer=6) as dataset:
            other[range(60)]
            taken_descriptors(5)
            whole = dataset[range(3 * N_SHARDS)]["example_idx"].tolist()
            assert whole == [row // 3 for row in range(3 * N_SHARDS)]
            return other[range(0, 60, 3)]["example_idx"].tolist()

    assert limited(read) == list(range(20))


@pytest.mark.slow
def test_where_nothing_at_all_can_be_opened_it_says_so(path):
    def read() -> tuple[int | None, bool]:
        with IndexedDataset(path, layer=6) as dataset:
            dataset.close()
            taken = [os.open("/dev/null", os.O_RDONLY), *taken_descriptors(1)]
            last = os.open("/dev/null", os.O_RDONLY)
            try:
                dataset[range(40)]
            except ShardReadError as error:
                found = error.errno
            for fd in (*taken, last):
                os.close(fd)
            return found, len(dataset[range(40)]["act"]) == 40

    assert limited(read) == [errno.EMFILE, True]


def test_many_threads_share_few_descriptors(path, monkeypatch):
    """Each may hold as many files as stay open."""

    def read() -> bool:
        limit_to(n_open() + 30)
        loader = OrderedDataLoader(path, layer=6, batch_size=120, workers=8)
        found = [int(example) for batch in loader for example in batch["example_idx"]]
        return found == [row // 3 for row in range(3 * N_SHARDS)]

    monkeypatch.setattr(_read_ahead, "_ROWS_AT_ONCE", 1)  # so that each batch has a thread
    assert limited(read) is True
