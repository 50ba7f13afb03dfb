"""Every row that a loader delivers equals what a plain np.memmap of the protocol gives."""

import weakref

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardproof import IndexedDataset, OrderedDataLoader, ShuffledDataLoader
from shardproof.loaders.io import _memory, _read_ahead, _read_plan
from shardproof.loaders.io._memory import Buffer
from shardproof.loaders.io._read_plan import _ascending
from shardproof.testing import Layout, shards_dir
from tests.helpers.drawing import examples
from tests.helpers.loading import counted, flat, selections, taken, whole_layouts, with_dtype
from tests.helpers.memmaps import delivered, rows

POOL = {"buffer_size": 64}


@examples(150)
@given(st.data())
def test_ordered_is_the_order_of_the_files(data):
    described = data.draw(whole_layouts())
    selection = data.draw(selections(described))
    batch_size, workers = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 3))
    with shards_dir(described) as path:
        loader = OrderedDataLoader(path, **selection, batch_size=batch_size, workers=workers)
        batches = taken(loader, selection["layer"])
        expected = rows(path, **selection)
    assert flat(batches) == expected
    assert len(batches) == len(loader) == loader.n_batches
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert loader.n_samples == len(expected)


@examples(150)
@given(st.data())
def test_shuffled_is_the_same_rows(data):
    described = data.draw(whole_layouts())
    selection = data.draw(selections(described))
    options = {
        "batch_size": data.draw(st.integers(1, 20)),
        "workers": data.draw(st.integers(1, 3)),
        "seed": data.draw(st.integers(0, 5)),
        "buffer_size": data.draw(st.none() | st.integers(1, 64)),
    }
    with shards_dir(described) as path:
        loader = ShuffledDataLoader(path, **selection, **options)
        batches = taken(loader, selection["layer"])
        expected = rows(path, **selection)
    assert counted(flat(batches)) == counted(expected)
    assert len(batches) == len(loader)
    assert {len(batch) for batch in batches[:-1]} <= {options["batch_size"]}


@examples(100)
@given(st.data())
def test_indexed_is_the_row_of_that_number(data):
    described = data.draw(whole_layouts())
    selection = data.draw(selections(described))
    with shards_dir(described) as path, IndexedDataset(path, **selection) as dataset:
        expected = rows(path, **selection)
        n_rows = len(expected)
        numbers = data.draw(st.lists(st.integers(-n_rows, n_rows - 1), max_size=20))
        assert len(dataset) == dataset.n_samples == n_rows
        wanted = [expected[number] for number in numbers]
        assert delivered(dataset[numbers], selection["layer"]) == wanted
        assert delivered(dataset[np.array(numbers, np.int32)], selection["layer"]) == wanted
        for number in numbers:
            one = {name: np.asarray(value)[None] for name, value in dataset[number].items()}
            assert delivered(one, selection["layer"]) == [expected[number]]


@examples(100)
@given(st.data())
@example(data=None).via("more ranks than fill a window")
def test_ranks_share_the_rows(data):
    described = data.draw(whole_layouts()) if data else Layout(n_shards=3)
    selection = data.draw(selections(described)) if data else {"layer": 6, "tokens": "all"}
    kind = data.draw(st.sampled_from([OrderedDataLoader, ShuffledDataLoader])) if data else None
    options = {"batch_size": data.draw(st.integers(1, 8)) if data else 2}
    kind = kind or ShuffledDataLoader
    if kind is ShuffledDataLoader:
        options["buffer_size"] = data.draw(st.none() | st.integers(1, 32)) if data else 8
    with shards_dir(described) as path:
        expected = rows(path, **selection)
        world_size = min(data.draw(st.integers(1, 5)) if data else 7, len(expected))
        loaders = [
            kind(path, **selection, **options, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        shares = [flat(taken(loader, selection["layer"])) for loader in loaders]
    assert counted(flat(shares)) == counted(expected)
    assert [loader.n_samples for loader in loaders] == [len(share) for share in shares]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize("kind", [OrderedDataLoader, ShuffledDataLoader])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("even_batches", [False, True])
def test_what_is_left_out(kind, drop_last, even_batches, shards_dir_factory):
    path = shards_dir_factory(n_shards=3, n_examples=9)  # of 3 content tokens
    options = {"drop_last": drop_last, "even_batches": even_batches, "world_size": 2}
    loaders = [
        kind(path, layer=6, batch_size=13, rank=rank, **options) for rank in range(2)
    ]  # 27 rows: 26 are a turn, one is left
    counts = [[len(batch["act"]) for batch in loader] for loader in loaders]
    last = [] if drop_last or even_batches else [1]
    assert counts == [[13], [13, *last]]
    assert [loader.n_samples for loader in loaders] == [sum(count) for count in counts]


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("float32", np.float32), ("float16", np.float16), ("bfloat16", np.uint16)],
)
def test_types(dtype, kind, shards_dir_factory):
    path = shards_dir_factory(n_shards=2, labels=True)
    if dtype != "float32":
        with_dtype(path, dtype)
    expected = rows(path, "all", "all")
    loader = OrderedDataLoader(path, layer="all", tokens="all", batch_size=7)
    batches = list(loader)
    found = {name: array.dtype for name, array in batches[0].items()}
    assert found == {
        "act": kind,
        "example_idx": np.int64,
        "token_idx": np.int64,
        "token_label": np.uint8,
        "layer": np.int64,
    }
    assert batches[0]["act"].shape == (7, loader.d_model)
    assert flat([delivered(batch, "all") for batch in batches]) == expected
    shuffled = ShuffledDataLoader(path, layer="all", tokens="all", batch_size=7, buffer_size=40)
    assert counted(flat(taken(shuffled, "all"))) == counted(expected)
    with IndexedDataset(path, layer="all", tokens="all") as dataset:
        assert dataset[0]["act"].dtype == kind
        assert delivered(dataset[range(len(expected))], "all") == expected


def test_a_batch_is_the_callers(shards_dir_factory):
    """Whatever is held on to: the batch, an array, a view of one, a memoryview."""
    path = shards_dir_factory(n_shards=3, examples_per_shard=16)
    for kind in (OrderedDataLoader, ShuffledDataLoader):
        loader = kind(path, layer=6, batch_size=4, workers=3)
        held, copies = [], []
        for place, batch in enumerate(loader):
            act = batch["act"]
            held.append([batch, act, act[2:, 1:3], memoryview(act)][place % 4])
            copies.append([batch["act"], act, act[2:, 1:3], act][place % 4].copy())
            del batch, act
        for kept, copy in zip(held, copies, strict=True):
            assert np.array_equal(kept["act"] if isinstance(kept, dict) else kept, copy)


@pytest.mark.parametrize("kind", [OrderedDataLoader, ShuffledDataLoader])
def test_nobody_holds_a_batch_but_the_caller(kind, shards_dir_factory):
    iteration = iter(kind(shards_dir_factory(n_shards=3), layer=6, batch_size=8))
    batch = next(iteration)
    act = weakref.ref(batch["act"])
    del batch
    assert act() is None


@pytest.mark.parametrize("kind", [OrderedDataLoader, ShuffledDataLoader])
def test_memory_is_used_again(kind, shards_dir_factory, monkeypatch):
    made = []
    monkeypatch.setattr(_memory, "Buffer", lambda *size: made.append(size) or Buffer(*size))
    monkeypatch.setattr(_read_ahead, "_ROWS_AT_ONCE", 32)  # of 4 batches
    path = shards_dir_factory(n_shards=3, examples_per_shard=64)
    loader = kind(path, layer=6, batch_size=8, **({} if kind is OrderedDataLoader else POOL))
    for _ in range(3):
        for batch in loader:
            assert len(batch["act"])
    assert len(made) <= 5 * 4 < len(loader)


def test_runs_longer_than_one_call_may_take(shards_dir_factory):
    """More rows that lie together than readv(2) takes vectors."""
    path = shards_dir_factory(n_shards=1, n_examples=2, content_tokens_per_example=3000, d_model=1)
    expected = rows(path, "all", "all")
    loader = ShuffledDataLoader(path, layer="all", tokens="all", batch_size=700)
    assert counted(flat(taken(loader, "all"))) == counted(expected)


@pytest.mark.slow
@examples(200)
@given(st.data(), st.integers(1, 4))
def test_rows_that_are_not_wanted_are_read_and_go_nowhere(data, most_gap):
    """Here gaps are as large as what is read beside them, and a call takes few vectors."""
    described = data.draw(whole_layouts())
    selection = data.draw(selections(described))
    batch_size, workers = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 3))
    with pytest.MonkeyPatch.context() as patch, shards_dir(described) as path:
        patch.setattr(_read_plan, "_MOST_GAP", most_gap)
        patch.setattr(_read_plan, "MOST_VECTORS", data.draw(st.sampled_from([2, 3, 8, 1024])))
        expected = rows(path, **selection)
        options = {**selection, "batch_size": batch_size, "workers": workers}
        ordered = OrderedDataLoader(path, **options)
        shuffled = ShuffledDataLoader(path, **options, buffer_size=data.draw(st.integers(1, 64)))
        assert flat(taken(ordered, selection["layer"])) == expected
        assert counted(flat(taken(shuffled, selection["layer"]))) == counted(expected)
        with IndexedDataset(path, **selection) as dataset:
            steps = data.draw(st.integers(1, 3))
            numbers = range(0, len(expected), steps)
            assert delivered(dataset[numbers], selection["layer"]) == expected[::steps]


@examples(100)
@given(st.integers(0, 2**62), st.integers(0, 1500), st.integers(0, 2**32))
@example(0, 1500, 0)
@example(2**16, 1500, 0)
@example(2**48, 1500, 0)
def test_places_are_sorted_by_16_bits_at_a_time(highest, n_places, seed):
    places = np.random.default_rng(seed).integers(0, highest, n_places, endpoint=True)
    assert np.array_equal(_ascending(places), np.argsort(places, kind="stable"))
