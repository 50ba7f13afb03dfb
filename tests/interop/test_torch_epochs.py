"""Epochs that nobody sets, in torch's DataLoader: workers agree which one it is."""

import copy
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from shardproof import OrderedDataLoader, ShuffledDataLoader

Rows = list[tuple[int, int]]

pytestmark = pytest.mark.usefixtures("no_worker_stays")

# The timeout turns a hang into an error; nothing that works comes near it.
FORK, SPAWN = (
    {"num_workers": 2, "multiprocessing_context": context, "timeout": 300}
    for context in ("fork", "spawn")
)
WORKERS = {
    "none": {"num_workers": 0},
    "one": FORK | {"num_workers": 1},
    "fork": FORK,
    "fork-stay": FORK | {"persistent_workers": True},
}
# Each spawned worker imports torch, which takes seconds: they are where they may differ.
SPAWNED = {"spawn": SPAWN, "spawn-stay": SPAWN | {"persistent_workers": True}}

workers = pytest.mark.parametrize("workers", WORKERS.values(), ids=WORKERS)


def opened(path: Path, **options: Any) -> ShuffledDataLoader:
    return ShuffledDataLoader(path, **{"layer": 6, "batch_size": 4, "buffer_size": 24} | options)


def over(loader: Any, workers: dict[str, Any]) -> DataLoader:
    return DataLoader(loader.torch_dataset(), batch_size=None, **workers)


def rows(batches: Any) -> Rows:
    found: Rows = []
    for batch in batches:
        columns = (batch[name].tolist() for name in ("example_idx", "token_idx"))
        found += zip(*columns, strict=True)
    return found


def epochs(path: Path, workers: dict[str, Any], numbers: Any, **options: Any) -> list[Rows]:
    """The order of each epoch, each from a loader of its own that was told which."""
    found = []
    for number in numbers:
        loader = opened(path, **options)
        loader.set_epoch(number)
        found.append(rows(over(loader, workers)))
    return found


@workers
def test_each_pass_is_the_next_epoch(workers, shards_dir) -> None:
    expected = epochs(shards_dir, workers, range(3))
    loader = opened(shards_dir)
    batches = over(loader, workers)
    found = [rows(batches) for _ in range(3)]

    assert found == expected
    assert len({tuple(order) for order in found}) == 3
    assert {tuple(sorted(order)) for order in found} == {tuple(sorted(rows(opened(shards_dir))))}
    assert len(set(found[0])) == len(found[0])
    assert loader.epoch == 2
    resumed = opened(shards_dir)
    resumed.load_state_dict(loader.state_dict())
    assert rows(over(resumed, workers)) == epochs(shards_dir, workers, [3])[0]


@pytest.mark.parametrize("workers", SPAWNED.values(), ids=SPAWNED)
def test_spawned_workers_agree_too(workers, shards_dir) -> None:
    """The same orders as forked ones."""
    expected = epochs(shards_dir, FORK, range(2))
    batches = over(opened(shards_dir), workers)
    assert [rows(batches) for _ in range(2)] == expected


@workers
@pytest.mark.parametrize("n_taken", [None, 1])
def test_a_loop_ends_when_so_many_are_done(workers, n_taken, shards_dir) -> None:
    expected = epochs(shards_dir, workers, range(3))
    loader = opened(shards_dir)
    batches = over(loader, workers)
    found = {each: rows(itertools.islice(batches, n_taken)) for each in loader.epochs(3)}

    assert list(found) == [0, 1, 2]
    assert [expected[each][: len(found[each])] for each in found] == [*found.values()]
    assert n_taken or [*found.values()] == expected
    resumed = opened(shards_dir)
    resumed.load_state_dict(loader.state_dict())
    assert [*loader.epochs(3), *resumed.epochs(3)] == []


@workers
def test_an_epoch_that_is_set_comes_next_and_then_those_after_it(workers, shards_dir) -> None:
    expected = epochs(shards_dir, workers, range(7))
    loader = opened(shards_dir)
    batches = over(loader, workers)
    found = [rows(batches)]
    for number in (5, 0, 0):
        loader.set_epoch(number)
        found.append(rows(batches))
    found.append(rows(batches))

    assert found == [expected[number] for number in (0, 5, 0, 0, 1)]


@workers
def test_a_pass_that_is_broken_off_comes_again(workers, shards_dir) -> None:
    expected = epochs(shards_dir, workers, range(2))
    batches = over(opened(shards_dir), workers)
    for n_taken in (1, 2, 1):
        pass_ = iter(batches)
        first = rows(itertools.islice(pass_, n_taken))
        assert first == expected[0][: len(first)]
        del pass_
    pass_ = iter(batches)
    next(pass_)
    pass_ = iter(batches)  # while another one is there
    assert [rows(pass_), rows(batches)] == expected


@workers
def test_all_batches_and_no_more_are_a_whole_epoch(workers, shards_dir) -> None:
    """Whoever counts never asks for the one after the last."""
    expected = epochs(shards_dir, workers, range(2))
    batches = over(opened(shards_dir), workers)
    n_batches = len([*over(opened(shards_dir), workers)])
    for order in expected:
        pass_ = iter(batches)
        assert rows(next(pass_) for _ in range(n_batches)) == order
        del pass_


@workers
def test_a_seed_that_is_set_for_each_pass_does_not_confuse(workers, shards_dir) -> None:
    """torch's seed of the workers is then always the same."""
    expected = epochs(shards_dir, workers, range(3))
    batches = over(opened(shards_dir), workers)
    found = []
    for _ in range(3):
        torch.manual_seed(0)
        pass_ = iter(batches)
        next(pass_)
        del pass_
        torch.manual_seed(0)
        found.append(rows(batches))
    assert found == expected


@workers
def test_ranks_agree_on_the_epoch(workers, shards_dir) -> None:
    loaders = [opened(shards_dir, rank=rank, world_size=2) for rank in range(2)]
    both = [over(loader, workers) for loader in loaders]
    found = [[rows(batches) for batches in both] for _ in range(2)]
    whole = sorted(rows(opened(shards_dir)))

    assert [sorted(one + other) for one, other in found] == [whole, whole]
    assert found[0] != found[1]


@workers
def test_a_state_that_is_loaded_reaches_workers_that_are_there(workers, shards_dir) -> None:
    first = opened(shards_dir)
    first.set_epoch(3)
    before = rows(itertools.islice(first, 7))
    resumed = opened(shards_dir)
    batches = over(resumed, workers)
    rows(batches)
    resumed.load_state_dict(first.state_dict())

    assert sorted(before + rows(batches)) == sorted(rows(opened(shards_dir)))
    assert rows(batches) == epochs(shards_dir, workers, [4])[0]


@workers
def test_a_resumed_epoch_that_is_broken_off_begins_where_it_was_resumed(
    workers, shards_dir
) -> None:
    first = opened(shards_dir)
    before = rows(itertools.islice(first, 7))
    resumed = opened(shards_dir)
    resumed.load_state_dict(first.state_dict())
    batches = over(resumed, workers)
    next(iter(batches))

    assert sorted(before + rows(batches)) == sorted(rows(opened(shards_dir)))
    assert rows(batches) == epochs(shards_dir, workers, [1])[0]


@workers
def test_this_process_and_workers_take_turns(workers, shards_dir) -> None:
    loader = opened(shards_dir)
    batches = over(loader, workers)
    found = [rows(loader), rows(batches), rows(loader), rows(batches)]

    own = epochs(shards_dir, WORKERS["none"], range(4))
    theirs = epochs(shards_dir, workers, range(4))
    assert found == [own[0], theirs[1], own[2], theirs[3]]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_goes_its_own_way(copied, shards_dir) -> None:
    loader = opened(shards_dir)
    one = DataLoader(loader.torch_dataset(), batch_size=None, **WORKERS["fork"])
    expected = epochs(shards_dir, WORKERS["fork"], range(3))
    assert rows(one) == expected[0]
    other = DataLoader(copied(one.dataset), batch_size=None, **WORKERS["fork"])

    found = [rows(other), rows(one), rows(one), rows(other)]
    assert found == [expected[n] for n in (1, 1, 2, 2)]


def test_an_ordered_loader_counts_too(shards_dir) -> None:
    loader = OrderedDataLoader(shards_dir, layer=6, batch_size=4)
    batches = over(loader, WORKERS["fork"])
    assert rows(batches) == rows(batches)
    assert loader.epoch == 1
