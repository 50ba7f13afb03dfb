"""Many reads in one call: what the kernel answers, and what is done where it answers nothing."""

import errno
import os

import numpy as np
import pytest

from shardproof import IndexedDataset, ShardReadError, ShuffledDataLoader
from shardproof.loaders.io import _open_shards, _submissions
from shardproof.loaders.io._submissions import Submissions, open_submissions
from tests.helpers.loading import flat, taken
from tests.helpers.memmaps import rows


@pytest.fixture
def queue():
    queue = open_submissions()
    if queue is None:
        pytest.skip("the kernel, or a sandbox, offers no io_submit(2)")
    yield queue
    queue.close()


@pytest.fixture
def file(tmp_path):
    (tmp_path / "file").write_bytes(bytes(range(256)) * 100)
    fd = os.open(tmp_path / "file", os.O_RDONLY)
    yield fd
    os.close(fd)


def read(queue, fd, offsets, n_bytes):
    memory = np.zeros((len(offsets), max(n_bytes)), np.uint8)
    addresses = memory.ctypes.data + np.arange(len(offsets)) * max(n_bytes)
    return queue.read(fd, np.array(offsets), addresses, np.array(n_bytes)).tolist(), memory


@pytest.mark.parametrize("count", [1, 127, 128, 129, 1000])
def test_each_read_has_its_own_bytes(queue, file, count):
    offsets = np.random.default_rng(0).integers(0, 25_000, count).tolist()
    n_read, memory = read(queue, file, offsets, [7] * count)
    assert n_read == [7] * count
    assert memory.tolist() == [[(at + i) % 256 for i in range(7)] for at in offsets]


def test_short_reads_are_answers(queue, file):
    n_read, memory = read(queue, file, [25_598, 25_600, 5], [4, 4, 4])
    assert n_read == [2, 0, 4]
    assert memory.tolist() == [[254, 255, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8]]


def test_what_the_kernel_does_not_take_has_no_bytes(queue, file):
    """It stops at a read that can't be, and takes none after it."""
    assert read(queue, file, [5, -1, 5], [4, 4, 4])[0] == [4, 0, 0]
    assert read(queue, file, [5], [4])[0] == [4]


def test_a_read_that_fails_has_a_negative_errno(queue, file):
    assert queue.read(file, np.array([0]), np.array([1]), np.array([4])).tolist() == [-errno.EFAULT]


def test_a_closed_queue_takes_nothing(queue, file):
    queue.close()
    queue.close()
    with pytest.raises(OSError, match="Invalid argument"):
        read(queue, file, [0], [4])


def test_a_wrong_descriptor_is_an_error_and_ends_the_queue(queue, file):
    with pytest.raises(OSError, match="Bad file descriptor"):
        read(queue, 10**6, [0], [4])
    with pytest.raises(OSError, match="Invalid argument"):
        read(queue, file, [0], [4])


def test_machines_and_sandboxes_without(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "no")

    monkeypatch.setattr(_submissions, "_call", refuse)
    assert open_submissions() is None
    monkeypatch.undo()
    monkeypatch.setattr(_submissions.platform, "machine", lambda: "vax")
    assert open_submissions() is None


def broken(*_):
    raise OSError(errno.EAGAIN, "no")


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=3, examples_per_shard=100)


@pytest.fixture(params=["offered", "not offered", "refused", "answers less"])
def kernel(request, monkeypatch):
    """How it goes with the kernel's queues; the rows are the same in each case."""
    if request.param == "not offered":
        monkeypatch.setattr(_open_shards, "open_submissions", lambda: None)
    elif request.param == "refused":
        monkeypatch.setattr(Submissions, "read", broken)
    elif request.param == "answers less":
        real = Submissions.read
        monkeypatch.setattr(Submissions, "read", lambda *args: real(*args) - 1)
    return request.param


@pytest.mark.parametrize("n_rows", [200, 1500])
def test_rows_by_number(kernel, n_rows, path):
    expected = rows(path, 6, "content")
    numbers = np.random.default_rng(1).integers(0, len(expected), n_rows)
    with IndexedDataset(path, layer=6) as dataset:
        (found,) = taken([dataset[numbers]], 6)
    assert found == [expected[number] for number in numbers]


def test_a_permutation_of_rows(kernel, path):
    loader = ShuffledDataLoader(path, layer=6, batch_size=100, buffer_size=None)
    assert sorted(flat(taken(loader, 6))) == sorted(rows(path, 6, "content"))


def test_queues_are_used(path, monkeypatch, queue):
    made = []
    monkeypatch.setattr(
        _open_shards, "open_submissions", lambda: made.append(type(queue)()) or made[-1]
    )
    with IndexedDataset(path, layer=6) as dataset:
        for _ in range(5):
            assert len(dataset[range(0, 800, 2)]["act"]) == 400
    assert len(made) == 1
    assert made[0]._queue.value == 0  # given back


@pytest.mark.parametrize("n_rows", [200, 1500])
def test_a_shard_that_shrinks(n_rows, path):
    with IndexedDataset(path, layer=6) as dataset:
        numbers = np.random.default_rng(1).integers(0, len(dataset), n_rows)
        assert len(dataset[numbers]["act"]) == n_rows
        os.truncate(path / "acts000001.bin", 1000)
        with pytest.raises(ShardReadError, match=r"acts000001\.bin.*shorter"):
            dataset[numbers]
