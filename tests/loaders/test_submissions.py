"""Many reads in one call: what the kernel answers, and what is done where it answers nothing."""

import errno
import os

import numpy as np
import pytest

from shardproof import IndexedDataset, ShardReadError
from shardproof.loaders.io import _open_shards, _submissions
from shardproof.loaders.io._memory import vectors
from shardproof.loaders.io._submissions import (
    Submissions,
    open_submissions,
    read_singly,
    requests_of,
)
from shardproof.testing.contracts._child import run_in_child
from tests.helpers.forking import returned
from tests.helpers.loading import taken
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


Found = tuple[list[int], np.ndarray]


def read(queue, fds, offsets, n_bytes) -> Found:
    """Read from several files, each read into a row of memory, which goes to two vectors."""
    memory = np.zeros((len(offsets), max(n_bytes)), np.uint8)
    addresses = memory.ctypes.data + np.arange(len(offsets)) * max(n_bytes)
    begins = np.stack((addresses, addresses + 1), 1).ravel()
    lengths = np.stack((np.ones(len(offsets)), np.array(n_bytes) - 1), 1).ravel()
    pieces = vectors(begins, lengths)
    places = pieces.ctypes.data + np.arange(len(offsets)) * 2 * pieces.itemsize
    fds = np.broadcast_to(np.array(fds), len(offsets))
    requests = requests_of(fds, np.array(offsets), places, np.full(len(offsets), 2))
    n_read = np.full(len(offsets), -1)
    step = _submissions.MOST_AT_ONCE
    for at in range(0, len(offsets), step):
        queue.read(requests[at : at + step], n_read)
    return n_read.tolist(), memory


class Singly:
    """Reads without a queue, as where the kernel offers none."""

    read = staticmethod(read_singly)


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1000])
@pytest.mark.parametrize("is_queue", [True, False])
def test_each_read_has_its_own_bytes(is_queue, count, queue, file):
    offsets = np.random.default_rng(0).integers(0, 25_000, count).tolist()
    n_read, memory = read(queue if is_queue else Singly, file, offsets, [7] * count)
    assert n_read == [7] * count
    assert memory.tolist() == [[(at + i) % 256 for i in range(7)] for at in offsets]


@pytest.mark.parametrize("is_queue", [True, False])
def test_one_call_reads_from_several_files(is_queue, queue, file, tmp_path):
    (tmp_path / "other").write_bytes(bytes(range(255, -1, -1)))
    other = os.open(tmp_path / "other", os.O_RDONLY)
    _, memory = read(queue if is_queue else Singly, [file, other, file], [5, 5, 9], [2, 2, 2])
    os.close(other)
    assert memory.tolist() == [[5, 6], [250, 249], [9, 10]]


def test_short_reads_are_answers(queue, file):
    n_read, memory = read(queue, file, [25_598, 25_600, 5], [4, 4, 4])
    assert n_read == [2, 0, 4]
    assert memory.tolist() == [[254, 255, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8]]


def test_what_the_kernel_does_not_take_has_no_answer(queue, file):
    """It stops at a read that can't be, and takes none after it."""
    assert read(queue, file, [5, -1, 5], [4, 4, 4])[0] == [4, -1, -1]
    assert read(queue, file, [5], [4])[0] == [4]


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


def one_byte_less(queue, requests, results, real=Submissions.read):
    real(queue, requests, results)
    results[requests["data"].astype(int)] -= 1


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=3, examples_per_shard=100)


@pytest.fixture(params=["offered", "not offered", "refused", "answers less"])
def kernel(request, monkeypatch):
    """How it goes with the kernel's queues; the rows are the same in each case."""
    if request.param == "not offered":
        monkeypatch.setattr(_submissions, "queues", _submissions.Queues())
        monkeypatch.setattr(_submissions, "open_submissions", lambda: None)
    elif request.param == "refused":
        monkeypatch.setattr(Submissions, "read", broken)
    elif request.param == "answers less":
        monkeypatch.setattr(Submissions, "read", one_byte_less)
    return request.param


@pytest.mark.parametrize("n_rows", [200, 1500])
def test_rows_by_number(kernel, n_rows, path):
    expected = rows(path, 6, "content")
    numbers = np.random.default_rng(1).integers(0, len(expected), n_rows)
    with IndexedDataset(path, layer=6) as dataset:
        (found,) = taken([dataset[numbers]], 6)
    assert found == [expected[number] for number in numbers]


def test_long_reads_need_no_queue(path, monkeypatch):
    """Where each takes longer than the call for it, calls of two threads are faster."""
    made = []
    monkeypatch.setattr(_submissions, "queues", _submissions.Queues())
    monkeypatch.setattr(_submissions, "open_submissions", lambda: made.append(1))
    monkeypatch.setattr(_open_shards, "_LONG", 1)
    with IndexedDataset(path, layer=6) as dataset:
        assert len(dataset[range(0, 800, 2)]["act"]) == 400
        assert not made
        monkeypatch.undo()
        monkeypatch.setattr(_submissions, "queues", _submissions.Queues())
        monkeypatch.setattr(_submissions, "open_submissions", lambda: made.append(1))
        assert len(dataset[range(0, 800, 2)]["act"]) == 400
    assert made


@pytest.mark.parametrize("n_rows", [200, 1500])
def test_a_shard_that_shrinks(n_rows, path):
    with IndexedDataset(path, layer=6) as dataset:
        numbers = np.random.default_rng(1).integers(0, len(dataset), n_rows)
        assert len(dataset[numbers]["act"]) == n_rows
        os.truncate(path / "acts000001.bin", 1000)
        text = (
            r"acts000001\.bin': it is shorter than when it was validated \(at byte \d+: expected "
        )
        with pytest.raises(ShardReadError, match=text + r"\d+ bytes, found \d+\)$") as caught:
            dataset[numbers]
        assert caught.value.found < caught.value.expected


def test_queues_are_kept_and_taken_again_and_there_are_only_so_many(queue, monkeypatch):
    """To give one back takes the kernel 30 ms."""
    monkeypatch.setattr(_submissions, "_MOST_QUEUES", 2)
    queues = _submissions.Queues()
    with queues.taken() as first:
        assert first is not None
        with queues.taken() as second, queues.taken() as third:
            assert second is not None
            assert third is None
    with queues.taken() as again:
        assert again is first
        again.close()  # as it is after an error
    del first, again
    with queues.taken() as kept, queues.taken() as fresh:
        assert kept is second
        assert fresh.is_open


def test_a_forked_process_takes_none_of_its_parent_s(queue, path):
    numbers = np.arange(200) * 3
    with IndexedDataset(path, layer=6) as dataset:
        expected = dataset[numbers]["act"].tolist()
        before = set(_submissions.queues._all)
        assert before

        def in_child() -> list[object]:
            n_taken = len(_submissions.queues._all)
            return [n_taken, IndexedDataset(path, layer=6)[numbers]["act"].tolist() == expected]

        found = returned(run_in_child(in_child, deadline=20))
        assert found == [0, True]
        assert all(queue.is_open for queue in before)
