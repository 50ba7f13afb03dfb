"""Epochs follow each other without being told; whoever tells is heard; a state carries it."""

import itertools
import multiprocessing
import os
import pickle

import pytest

from shardproof import ShuffledDataLoader
from shardproof.loaders.order._epoch_plan import DeliveredPart, EpochPosition
from shardproof.loaders.order._epochs import Passes, WorkerTurn
from shardproof.testing.contracts._child import run_in_child
from tests.helpers.loading import counted, flat, saved, taken, whole_pass

KINDS = [{"buffer_size": 24}, {"buffer_size": None}]


@pytest.fixture(params=KINDS, ids=["pool", "permutation"])
def make(request, shards_dir_factory):
    path = shards_dir_factory(n_shards=4, examples_per_shard=8)
    options = {"layer": 6, "batch_size": 4} | request.param
    return lambda **more: ShuffledDataLoader(path, **options | more)


def first(iteration, n_batches: int) -> list[list[tuple]]:
    return taken(itertools.islice(iteration, n_batches), 6)


def test_each_iteration_is_the_next_epoch(make, expected):
    loader = make()
    orders = [taken(loader, 6) for _ in range(3)]
    assert orders == [expected(0), expected(1), expected(2)]
    assert orders[0] != orders[1] != orders[2] != orders[0]
    assert len({frozenset(counted(flat(order)).items()) for order in orders}) == 1


def test_an_epoch_that_is_set_comes_next_and_then_those_after_it(make, expected):
    loader = make()
    orders = []
    for number in (5, None, 0, 0, None):
        if number is not None:
            loader.set_epoch(number)
        orders.append(taken(loader, 6))
    assert orders == [expected(number) for number in (5, 6, 0, 0, 1)]


@pytest.mark.parametrize("n_taken", [0, 1, 5])
def test_an_abandoned_epoch_comes_again(make, expected, n_taken):
    loader = make()
    for _ in range(3):
        assert first(loader, n_taken) == expected(0)[:n_taken]
    assert [taken(loader, 6), taken(loader, 6)] == [expected(0), expected(1)]


def test_a_resumed_epoch_that_is_abandoned_begins_where_it_was_resumed(make, expected):
    other, loader = make(), make()
    first(other, 5)
    loader.load_state_dict(saved(other))
    assert first(loader, 2) == expected(0)[5:7]
    assert taken(loader, 6) == expected(0)[5:]
    assert taken(loader, 6) == expected(1)


def test_what_is_set_during_an_iteration_is_of_the_next_one(make, expected):
    loader = make()
    for epoch in (4, 0):
        running = iter(loader)
        begun = first(running, 2)
        loader.set_epoch(epoch)
        assert begun + taken(running, 6) in (expected(0), expected(4))
        assert taken(loader, 6) == expected(epoch)
        loader.set_epoch(0)


@pytest.mark.slow
def test_a_state_that_is_loaded_during_an_iteration_counts(make, expected):
    loader, other = make(), make()
    other.set_epoch(7)
    first(other, 2)
    running = iter(loader)
    first(running, 2)
    loader.load_state_dict(saved(other))
    taken(running, 6)
    assert saved(loader) == saved(other)
    assert taken(loader, 6) == expected(7)[2:]


# What workers agree by. torch's own are in tests/interop.


def turns(seed: int, number: int = 0, n_workers: int = 2) -> list[WorkerTurn]:
    return [WorkerTurn(seed, number, worker, n_workers) for worker in range(n_workers)]


def test_a_pass_is_one_epoch_for_all_whoever_comes_when():
    passes = Passes()
    for epoch in range(3):
        early, late = turns(seed=epoch)
        assert passes.enter(early) == EpochPosition(epoch)
        passes.finish(early)
        assert passes.last_finished() is None
        assert passes.enter(late) == EpochPosition(epoch)
        passes.finish(late)
        assert passes.last_finished() == (epoch + 1, epoch)


def test_an_epoch_that_was_set_is_over_when_workers_have_finished_it(make, expected):
    loader = make()
    loader.set_epoch(5)
    assert whole_pass(loader._cursor.shared(), turns(seed=1)) == {EpochPosition(5)}
    assert (loader.epoch, loader.n_left) == (5, len(loader))
    assert taken(loader, 6) == expected(6)


def test_a_loop_goes_on_when_workers_have_finished_an_epoch_or_not(make):
    loader = make()
    passes, found = loader._cursor.shared(), []
    for epoch in loader.epochs(4):
        workers = turns(seed=epoch)
        found += {passes.enter(worker) for worker in workers}
        for worker in workers[epoch % 2 :]:  # each second epoch is broken off
            passes.finish(worker)
    assert found == [EpochPosition(epoch) for epoch in range(4)]
    assert loader.epoch == 4


def test_a_pass_that_one_worker_did_not_finish_comes_again():
    passes = Passes()
    for seed in range(3):
        early, late = turns(seed)
        assert passes.enter(early) == passes.enter(late) == EpochPosition(0)
        passes.finish(early)
    assert whole_pass(passes, turns(seed=3)) == {EpochPosition(0)}
    assert whole_pass(passes, turns(seed=4)) == {EpochPosition(1)}


def test_workers_of_an_older_pass_do_not_count():
    passes = Passes()
    old, new = turns(seed=1), turns(seed=2)
    for worker in (*old, *new):
        passes.enter(worker)
    for worker in old:
        passes.finish(worker)
    assert passes.last_finished() is None
    stays = turns(seed=2, number=1)
    assert passes.enter(stays[0]) == EpochPosition(0)
    assert passes.enter(new[1]) == EpochPosition(0)  # late for the one before
    assert whole_pass(passes, stays) == {EpochPosition(0)}
    assert whole_pass(passes, turns(seed=2, number=2)) == {EpochPosition(1)}


def test_one_seed_for_all_passes_and_another_number_of_workers():
    passes = Passes()
    for epoch, n_workers in enumerate((1, 1, 3, 2, 2, 1)):
        assert whole_pass(passes, turns(seed=0, n_workers=n_workers)) == {EpochPosition(epoch)}


def test_a_place_that_is_chosen_is_where_the_next_pass_begins():
    passes = Passes()
    place = EpochPosition(3, (DeliveredPart(2, 5), DeliveredPart(4, 6)), 7)
    whole_pass(passes, turns(seed=1))
    passes.begin_with(place)
    assert passes.last_finished() is None
    assert passes.enter(turns(seed=2)[0]) == place
    assert whole_pass(passes, turns(seed=3)) == {place}
    assert whole_pass(passes, turns(seed=4)) == {EpochPosition(4)}


def test_there_is_room_for_many_workers_and_for_many_parts():
    passes = Passes()
    assert whole_pass(passes, turns(seed=1, n_workers=1025)) == {EpochPosition(0)}
    place = EpochPosition(0, (DeliveredPart(1, 1),) * 65)
    passes.begin_with(place)
    assert whole_pass(passes, turns(seed=2)) == {place}


def test_a_forked_process_shares_and_a_copy_does_not():
    passes = Passes()
    copy = pickle.loads(pickle.dumps(passes))
    run_in_child(lambda: whole_pass(passes, turns(seed=1)), deadline=20)
    assert passes.last_finished() == (1, 0)
    assert copy.last_finished() is None
    assert whole_pass(pickle.loads(pickle.dumps(passes)), turns(seed=2)) == {EpochPosition(1)}


def test_a_spawned_process_shares():
    passes = Passes()
    child = multiprocessing.get_context("spawn").Process(
        target=whole_pass, args=(passes, turns(seed=1))
    )
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert passes.last_finished() == (1, 0)


def test_a_worker_that_dies_holds_up_nobody():
    passes = Passes()

    def die_with_the_lock():
        with passes._locked():
            os._exit(0)

    pid = os.fork()
    if not pid:
        die_with_the_lock()
    os.waitpid(pid, 0)
    assert whole_pass(passes, turns(seed=1)) == {EpochPosition(0)}


def test_a_table_that_is_gone_gives_back_its_descriptor():
    before = len(os.listdir("/dev/fd"))
    for _ in range(10):
        Passes()
    assert len(os.listdir("/dev/fd")) == before
