"""A state continues with the very next batch, whatever the number of ranks then."""

import itertools
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import OrderedDataLoader, ShuffledDataLoader
from shardproof.testing import shards_dir
from tests.helpers.drawing import examples
from tests.helpers.loading import counted, flat, selections, taken, whole_layouts
from tests.helpers.memmaps import rows

KINDS = [
    (OrderedDataLoader, {}),
    (ShuffledDataLoader, {"buffer_size": 24}),
    (ShuffledDataLoader, {"buffer_size": None}),
]


@pytest.fixture(params=KINDS, ids=["ordered", "pool", "permutation"])
def make(request, shards_dir_factory):
    kind, options = request.param
    path = shards_dir_factory(n_shards=5, examples_per_shard=8)
    return lambda **more: kind(path, **({"layer": 6, "batch_size": 4} | options | more))


def first(loader, n_batches: int) -> list[list[tuple]]:
    """The first batches of an iteration that ends there."""
    return taken(itertools.islice(loader, n_batches), 6)


def saved(loader) -> dict:
    return json.loads(json.dumps(loader.state_dict()))


@pytest.mark.parametrize("n_batches", [0, 1, 3, 6, 7, 28])
def test_the_next_batch(make, n_batches):
    undisturbed = make()
    whole, following = taken(undisturbed, 6), taken(undisturbed, 6)
    loader = make()
    assert first(loader, n_batches) == whole[:n_batches]
    resumed = make(workers=1)
    resumed.load_state_dict(saved(loader))
    if n_batches < len(whole):
        assert taken(resumed, 6) == whole[n_batches:]
    assert taken(resumed, 6) == following


@pytest.mark.once
@examples(150)
@given(st.data())
def test_ranks_may_change(data):
    """Several times in one epoch; all rows come once in all."""
    described = data.draw(whole_layouts())
    selection = data.draw(selections(described))
    kind, options = data.draw(st.sampled_from(KINDS))
    options = options | selection | {"batch_size": data.draw(st.integers(1, 5))}
    with shards_dir(described) as path:
        expected = rows(path, **selection)
        found, state = [], None
        for n_batches in [*data.draw(st.lists(st.integers(0, 3), max_size=3)), None]:
            world_size = data.draw(st.integers(1, min(4, len(expected))))
            ranks = [
                kind(path, **options, rank=rank, world_size=world_size)
                for rank in range(world_size)
            ]
            if len(found) == len(expected):
                break  # what follows is the next epoch
            found += part(ranks, state, n_batches, selection["layer"])
            state = saved(
                max(ranks, key=lambda rank: rank.state_dict()["delivered"][-1]["n_batches"])
            )
    assert counted(found) == counted(expected)


def part(ranks, state, n_batches, layer) -> list[tuple]:
    """What ranks deliver in step: as many batches each as there are, at most so many."""
    found = []
    for rank in ranks:
        if state is not None:
            rank.load_state_dict(state)
        found += flat(taken(itertools.islice(rank, n_batches), layer))
    return found


def test_nothing_before_is_read(make, shards_dir_factory):
    path = shards_dir_factory(n_shards=5, examples_per_shard=8)
    loader = OrderedDataLoader(path, layer=6, batch_size=4)
    first(loader, 12)  # two shards: 48 rows
    resumed = OrderedDataLoader(path, layer=6, batch_size=4)
    resumed.load_state_dict(saved(loader))
    (path / "acts000000.bin").unlink()
    (path / "acts000001.bin").unlink()
    assert len(taken(resumed, 6)) == len(loader) - 12


def test_a_loop_may_set_the_epoch_it_is_in(make):
    loader = make()
    loader.set_epoch(2)
    expected = taken(loader, 6)
    loader.set_epoch(2)
    before = first(loader, 5)
    resumed = make()
    resumed.load_state_dict(saved(loader))
    assert resumed.epoch == 2
    resumed.set_epoch(2)
    assert before + taken(resumed, 6) == expected
    resumed.set_epoch(3)
    assert len(taken(resumed, 6)) == len(expected)


def test_another_epoch_begins_at_its_start(make):
    loader = make()
    first(loader, 5)
    resumed = make()
    resumed.load_state_dict(saved(loader))
    resumed.set_epoch(1)
    assert len(taken(resumed, 6)) == len(loader)


def test_a_state_is_small(make):
    loader = make()
    first(loader, 3)
    assert len(json.dumps(loader.state_dict())) < 400


def test_a_state_before_anything(make):
    loader = make()
    loader.load_state_dict(saved(loader))
    assert taken(loader, 6) == taken(make(), 6)


@pytest.mark.parametrize(
    ("option", "value"),
    [("layer", 11), ("layer", "all"), ("tokens", "all"), ("batch_size", 5), ("drop_last", True)],
)
def test_a_state_of_other_rows_is_refused(make, option, value):
    with pytest.raises(ValueError, match=rf"of another loader: .*{option}: expected {value!r}"):
        make(**{option: value}).load_state_dict(saved(make()))


@pytest.mark.parametrize(
    ("option", "value"), [("seed", 4), ("buffer_size", 32), ("ignore_labels", [1])]
)
def test_a_state_of_another_order_is_refused(option, value, shards_dir_factory):
    path = shards_dir_factory(labels=True)
    state = saved(ShuffledDataLoader(path, layer=6))
    loader = ShuffledDataLoader(path, layer=6, **{option: value})
    with pytest.raises(ValueError, match="of another loader: order: expected"):
        loader.load_state_dict(state)


def test_a_state_of_another_directory_is_refused(shards_dir_factory):
    state = saved(OrderedDataLoader(shards_dir_factory(n_shards=2), layer=6))
    loader = OrderedDataLoader(shards_dir_factory(n_shards=3), layer=6)
    with pytest.raises(ValueError, match="of another loader: directory: expected '"):
        loader.load_state_dict(state)


def test_a_state_of_another_kind_is_refused(shards_dir_factory):
    path = shards_dir_factory()
    with pytest.raises(ValueError, match="loader: expected 'ShuffledDataLoader', found 'Ordered"):
        ShuffledDataLoader(path, layer=6).load_state_dict(saved(OrderedDataLoader(path, layer=6)))


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": True},
        {"epoch": sys.maxsize},
        {"delivered": [[1, 2]]},
        {"delivered": [{"world_size": 0, "n_batches": 1}]},
        {"delivered": [{"world_size": 10**9, "n_batches": 1}]},
        {"delivered": [{"world_size": 1, "n_batches": -1}]},
        {"delivered": [{"world_size": 1.5, "n_batches": 1}]},
        {"delivered": None},
        {"version": 2},
        {"more": 1},
    ],
)
def test_what_is_no_state_is_refused(make, change):
    loader = make()
    with pytest.raises(ValueError, match=r"expected"):
        loader.load_state_dict(saved(loader) | change)
    with pytest.raises(ValueError, match="expected what state_dict"):
        loader.load_state_dict({})


def test_more_batches_than_there_are_is_the_end(make):
    state = saved(make())
    state["delivered"][-1]["n_batches"] = 10**6
    undisturbed = make()
    undisturbed.set_epoch(1)
    following = counted(flat(taken(undisturbed, 6)))
    for world_size in (1, 2):
        ranks = [make(world_size=world_size, rank=rank) for rank in range(world_size)]
        for rank in ranks:
            rank.load_state_dict(state)
        assert counted([row for rank in ranks for row in flat(taken(rank, 6))]) == following
        assert {rank.epoch for rank in ranks} == {1}
