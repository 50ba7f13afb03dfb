"""Batches that are read together: the same ones, in the same order, as if each were read alone."""

import hashlib
import itertools
import threading

import pytest

from shardproof import OrderedDataLoader, ShuffledDataLoader
from shardproof.loaders.io import _read_ahead
from tests.helpers.loading import flat, taken
from tests.helpers.memmaps import rows

ORDERED = (OrderedDataLoader, {})
PERMUTED = (ShuffledDataLoader, {"buffer_size": None})
POOL = (ShuffledDataLoader, {"buffer_size": 24})
WORLDS = range(1, 5)
BATCH = 4


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=5, examples_per_shard=8, labels=True)


RARE = pytest.mark.exhaustive


@pytest.fixture(params=[1, *(pytest.param(n, marks=RARE) for n in (BATCH, 3 * BATCH)), 4096])
def rows_at_once(request, monkeypatch):
    monkeypatch.setattr(_read_ahead, "_ROWS_AT_ONCE", request.param)
    return request.param


def loaders(path, kind, world_size, **more):
    make, options = kind
    options = {"layer": 6, "batch_size": BATCH, "world_size": world_size} | options | more
    return [make(path, rank=rank, **options) for rank in range(world_size)]


def resumed(path, kind, before: int, after: int, n_batches: int) -> list[list[list[tuple]]]:
    """What each rank of some delivers after each of others has delivered some batches."""
    first = loaders(path, kind, before)[0]
    taken(itertools.islice(first, n_batches), 6)
    found = []
    for loader in loaders(path, kind, after):
        loader.load_state_dict(first.state_dict())
        found.append(taken(loader, 6))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "digest"),
    [
        (ORDERED, "17a182d969d188cd"),
        (PERMUTED, "397d1c453e29821a"),
        (POOL, "6434ef07347371e5"),
    ],
    ids=["ordered", "permuted", "pool"],
)
def test_rows_of_ranks_and_after_a_resume_are_a_promise(kind, digest, path, rows_at_once):
    """Of 1 to 4 ranks. The digests are of the version that read each batch alone."""
    whole = [taken(loader, 6) for world in WORLDS for loader in loaders(path, kind, world)]
    worlds = itertools.product(WORLDS, WORLDS, [6])
    left = [resumed(path, kind, *each) for each in worlds]
    assert hashlib.sha256(repr((whole, left)).encode()).hexdigest()[:16] == digest


@pytest.mark.parametrize("world_size", WORLDS)
def test_ranks_are_dealt_batch_by_batch(world_size, path, rows_at_once):
    expected = rows(path, 6, "content")
    n_whole = len(expected) // (BATCH * world_size)
    for rank, loader in enumerate(loaders(path, ORDERED, world_size)):
        batches = taken(loader, 6)[:n_whole]
        starts = [(number * world_size + rank) * BATCH for number in range(n_whole)]
        assert batches == [expected[start : start + BATCH] for start in starts]


def stretches(monkeypatch, loader) -> list[int]:
    """How many batches are read together, in the order of the batches."""
    found, read = {}, _read_ahead.StretchRead.read

    def noted(stretch, *part):
        batches = read(stretch, *part)
        found[stretch.start] = max(len(batches), found.get(stretch.start, 0))
        return batches

    monkeypatch.setattr(_read_ahead.StretchRead, "read", noted)
    taken(loader, 6)
    monkeypatch.undo()
    return [found[start] for start in sorted(found)]


@pytest.mark.parametrize("kind", [ORDERED, PERMUTED], ids=["ordered", "permuted"])
def test_the_first_batch_is_read_alone_and_more_and_more_together(kind, path, monkeypatch):
    (loader,) = loaders(path, kind, 1)
    assert len(loader) == 30
    assert stretches(monkeypatch, loader) == [1, 2, 4, 8, 15]
    monkeypatch.setattr(_read_ahead, "_ROWS_AT_ONCE", 3 * BATCH)
    assert stretches(monkeypatch, loader) == [1, 2, *[3] * 9]


def test_who_keeps_one_batch_keeps_no_other(path):
    (loader,) = loaders(path, ORDERED, 1)
    for batch in loader:
        for name, column in batch.items():
            memory = column
            while memory.base is not None:
                memory = memory.base
            assert memory.nbytes == BATCH * (column.nbytes // len(column)), name
        if loader.state_dict()["delivered"][-1]["n_batches"] == 20:
            break


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_more_is_read_ahead_than_promised(workers, path, monkeypatch):
    """A stretch for each thread, and one more, behind the one that is delivered."""
    monkeypatch.setattr(_read_ahead, "_ROWS_AT_ONCE", 2 * BATCH)
    begun, read = [], _read_ahead.StretchRead.read
    is_begun = threading.Semaphore(0)

    def noted(stretch, *part):
        begun.append(stretch.start)
        is_begun.release()
        return read(stretch, *part)

    monkeypatch.setattr(_read_ahead.StretchRead, "read", noted)
    (loader,) = loaders(path, ORDERED, 1, workers=workers)
    iteration = iter(loader)
    next(iteration)
    for _ in range(workers + 1):
        assert is_begun.acquire(timeout=30)
    assert not is_begun.acquire(timeout=0.1)
    assert len(begun) == workers + 1
    assert len(flat(taken(iteration, 6))) == loader.n_samples - BATCH
