"""Loops over epochs train so many in all, wherever they are killed and resumed."""

import itertools
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import OrderedDataLoader, ShuffledDataLoader
from shardproof.testing import Layout, shards_dir
from tests.helpers.drawing import examples
from tests.helpers.loading import counted, flat, saved, taken

KINDS = [
    (OrderedDataLoader, {}),
    (ShuffledDataLoader, {"buffer_size": 24}),
    (ShuffledDataLoader, {"buffer_size": None}),
]


@pytest.fixture(params=KINDS, ids=["ordered", "pool", "permutation"])
def make(request, shards_dir_factory):
    kind, options = request.param
    path = shards_dir_factory(n_shards=2, examples_per_shard=8)
    return lambda **more: kind(path, **({"layer": 6, "batch_size": 16} | options | more))


def resumed(make, state: dict):
    loader = make()
    loader.load_state_dict(state)
    return loader


def run(loader, n: int) -> dict[int, list[list[tuple]]]:
    """What the loop of the docs trains on, by the number that it is told."""
    return {epoch: taken(loader, 6) for epoch in loader.epochs(n)}


def test_so_many_epochs_and_no_more(make, expected):
    loader = make()
    assert run(loader, 3) == {epoch: expected(epoch) for epoch in range(3)}
    assert run(loader, 3) == run(resumed(make, saved(loader)), 3) == {}
    assert run(loader, 4) == {3: expected(3)}


@pytest.mark.parametrize("n_taken", [0, 1, 3])
@pytest.mark.parametrize("tells", [False, True], ids=["", "set_epoch"])
def test_an_epoch_that_is_broken_off_is_over(make, expected, n_taken, tells):
    """With or without the set_epoch that such loops had, be it the first line or the last."""
    loader, found = make(), []
    for epoch in loader.epochs(3):
        if tells:
            loader.set_epoch(epoch)
        found.append(taken(itertools.islice(loader, n_taken), 6))
        if tells and n_taken < 3:
            loader.set_epoch(epoch)
    assert found == [expected(epoch)[:n_taken] for epoch in range(3)]
    assert run(resumed(make, saved(loader)), 4) == {3: expected(3)}


def test_an_epoch_that_is_chosen_in_the_loop_comes_next(make, expected):
    loader, found = make(), []
    for epoch in loader.epochs(6):
        found.append((epoch, taken(loader, 6)))
        if epoch == 1:
            loader.set_epoch(4)
    assert found == [(epoch, expected(epoch)) for epoch in (0, 1, 4, 5)]


@pytest.mark.parametrize("n_before", [1, 4])
def test_a_state_that_is_loaded_in_the_loop_is_where_it_goes_on(make, expected, n_before):
    """Back to an earlier place of this epoch, or of the one before it."""
    loader, found, state = make(), [], None
    batches = [batch for epoch in range(3) for batch in expected(epoch)]
    for _ in loader.epochs(3):
        for batch in loader:
            found += taken([batch], 6)
            if len(found) == n_before and state is None:
                state = saved(loader)
            if len(found) == 5:
                loader.load_state_dict(state)
                break
    assert found == batches[:5] + batches[n_before:]


def test_fewer_than_are_done_are_none(make):
    loader = make()
    loader.set_epoch(5)
    taken(itertools.islice(loader, 1), 6)
    assert [list(loader.epochs(n)) for n in (0, 1, 5)] == [[], [], []]
    assert list(loader.epochs(6)) == [5]


def test_a_loader_without_rows_has_epochs_too():
    with shards_dir(Layout(n_shards=1, n_examples=0)) as path:
        loader = OrderedDataLoader(path, layer=6)
        assert run(loader, 3) == {0: [], 1: [], 2: []}
        assert run(loader, 3) == {}


@pytest.mark.parametrize("even", [False, True])
def test_ranks_have_the_same_rounds(make, even):
    """Of 48 rows in batches of 7 for 3 ranks: one has a batch less, unless they are even."""
    options = {"world_size": 3, "batch_size": 7, "even_batches": even}
    ranks = [make(rank=rank, **options) for rank in range(3)]
    found = [list(run(rank, 3)) for rank in ranks]
    assert found == [[0, 1, 2]] * 3
    for rank in ranks:  # the state of any rank is that of all
        again = [make(rank=number, **options) for number in range(3)]
        for each in again:
            each.load_state_dict(saved(rank))
        assert [list(run(each, 4)) for each in again] == [[3]] * 3


@pytest.mark.slow
@examples(60)
@given(st.data())
def test_killed_anywhere_and_resumed_each_row_comes_once_an_epoch(data):
    """Any number of times, with another number of ranks each time; saved at the last step."""
    kind, options = data.draw(st.sampled_from(KINDS))
    options = options | {"layer": 6, "batch_size": data.draw(st.integers(1, 9))}
    n_epochs = data.draw(st.integers(0, 3))
    with shards_dir(Layout(n_shards=2, examples_per_shard=2, content_tokens_per_example=3)) as path:
        whole = flat(taken(OrderedDataLoader(path, layer=6), 6))
        found, state = [], None
        for n_steps in [*data.draw(st.lists(st.integers(0, 8), max_size=4)), None, None]:
            n_ranks = data.draw(st.integers(1, 3))
            ranks = [kind(path, **options, rank=n, world_size=n_ranks) for n in range(n_ranks)]
            for rank in ranks if state else ():
                rank.load_state_dict(state)
            for step in itertools.islice(steps(ranks, n_epochs), n_steps):
                found += step
            state = saved(max(ranks, key=n_delivered))
    assert counted(found) == counted(whole * n_epochs)


def n_delivered(rank) -> int:
    return rank.state_dict()["delivered"][-1]["n_batches"]


def steps(ranks, n_epochs: int):
    """The rows of each step of ranks that wait for each other, in the loop of the docs."""
    for epochs in zip(*(rank.epochs(n_epochs) for rank in ranks), strict=True):
        assert len(set(epochs)) == 1
        for batches in itertools.zip_longest(*ranks):
            yield flat(taken((batch for batch in batches if batch is not None), 6))


def test_nothing_before_is_read(shards_dir_factory):
    path = shards_dir_factory(n_shards=5, examples_per_shard=8)
    loader = OrderedDataLoader(path, layer=6, batch_size=4)
    taken(itertools.islice(loader, 12), 6)  # two shards: 48 rows
    resumed = OrderedDataLoader(path, layer=6, batch_size=4)
    resumed.load_state_dict(saved(loader))
    (path / "acts000000.bin").unlink()
    (path / "acts000001.bin").unlink()
    assert len(taken(resumed, 6)) == len(loader) - 12


def test_a_loop_may_set_the_epoch_it_is_in(make):
    loader = make(batch_size=4)
    loader.set_epoch(2)
    expected = taken(loader, 6)
    loader.set_epoch(2)
    before = taken(itertools.islice(loader, 5), 6)
    resumed = make(batch_size=4)
    resumed.load_state_dict(saved(loader))
    assert resumed.epoch == 2
    resumed.set_epoch(2)
    assert before + taken(resumed, 6) == expected
    resumed.set_epoch(3)
    assert len(taken(resumed, 6)) == len(expected)


@pytest.mark.parametrize(
    ("option", "value"),
    [("layer", 11), ("layer", "all"), ("tokens", "all"), ("batch_size", 5), ("drop_last", True)],
)
def test_a_state_of_other_rows_is_refused(make, option, value):
    with pytest.raises(ValueError, match=rf"of another loader: .*{option}: expected {value!r}"):
        make(**{option: value}).load_state_dict(saved(make()))


@pytest.mark.parametrize(
    ("of", "problem"),
    [
        ((ShuffledDataLoader, 3, {"seed": 4}), "order: expected"),
        ((ShuffledDataLoader, 3, {"buffer_size": 32}), "order: expected"),
        ((ShuffledDataLoader, 3, {"ignore_labels": [1]}), "order: expected"),
        ((ShuffledDataLoader, 2, {}), "directory: expected '"),
        ((OrderedDataLoader, 3, {}), "loader: expected 'ShuffledDataLoader', found 'Ordered"),
    ],
)
def test_a_state_of_another_order_directory_or_kind_is_refused(of, problem, shards_dir_factory):
    kind, n_shards, options = of
    state = saved(kind(shards_dir_factory(n_shards=n_shards, labels=True), layer=6, **options))
    loader = ShuffledDataLoader(shards_dir_factory(n_shards=3, labels=True), layer=6)
    with pytest.raises(ValueError, match=f"of another loader: .*{problem}"):
        loader.load_state_dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": sys.maxsize},
        {"delivered": [{"world_size": 0, "n_batches": 1}]},
        {"delivered": [{"world_size": 10**9, "n_batches": 1}]},
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
