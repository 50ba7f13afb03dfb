"""IndexedDataset: rows by number, as a sequence and as torch's map-style datasets are asked."""

import os
import sys
import types

import numpy as np
import pytest

from shardproof import IndexedDataset
from tests.helpers.loading import taken
from tests.helpers.memmaps import rows


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=3, labels=True)


@pytest.fixture
def dataset(path):
    with IndexedDataset(path, layer="all") as dataset:
        yield dataset


@pytest.mark.parametrize("number", [66, -67, 2**63, 10**30])
def test_out_of_range(dataset, number):
    expected = rf"expected a number from -66 below 66, found {number}"
    with pytest.raises(IndexError, match=expected):
        dataset[number]
    with pytest.raises(IndexError, match=expected):
        dataset[[0, number, 1]]


def test_slices_are_refused(dataset):
    with pytest.raises(TypeError, match="found a slice: give range"):
        dataset[:2]


@pytest.mark.parametrize("key", [1.0, "1", None, [1.0], ["a"], [[1]], [True], np.ones(3, bool)])
def test_what_is_no_number(dataset, key):
    with pytest.raises(TypeError):
        dataset[key]


def test_closed_and_opened_again(dataset):
    expected = dataset[0]["act"]
    n_descriptors = len(os.listdir("/dev/fd"))
    dataset.close()
    dataset.close()
    assert len(os.listdir("/dev/fd")) < n_descriptors
    assert np.array_equal(dataset[0]["act"], expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64"])
def test_numbers_of_a_short_type(dtype, shards_dir_factory):
    path = shards_dir_factory(n_shards=2, examples_per_shard=50)
    expected = rows(path, 6, "content")
    assert len(expected) > 2**8
    numbers = np.array([0, 5, 127], dtype)
    with IndexedDataset(path, layer=6) as dataset:
        (found,) = taken([dataset[numbers]], 6)
        assert found == [expected[number] for number in (0, 5, 127)]


def test_a_whole_batch_is_its_own_first_sample(path):
    """By whose type torch's default_collate finds out that nothing is to be collated."""
    batch = IndexedDataset(path, layer=6).__getitems__([2, 0])
    assert batch[0] is batch
    assert isinstance(batch, dict)
    assert len(batch["act"]) == 2
    for key in (1, "nothing"):
        with pytest.raises(KeyError):
            batch[key]


def test_rows_as_tensors(path, monkeypatch):
    """Here by a module that only notes of what tensors are made, since torch need not be there."""
    made = []

    def tensors(batch, dtype, wanted, *, pin_memory):
        assert (wanted, pin_memory) == (None, False)
        made.append((sorted(batch), dtype))
        return {name: ("tensor", value.tolist()) for name, value in batch.items()}

    fake = types.SimpleNamespace(tensors=tensors)
    monkeypatch.setitem(sys.modules, "shardproof.loaders._torch", fake)
    monkeypatch.setattr("shardproof.loaders._torch", fake, raising=False)
    arrays = IndexedDataset(path, layer="all")
    with IndexedDataset(path, layer="all", framework="torch") as dataset:
        for key in (5, [5, 0, 5]):
            expected = {name: ("tensor", value.tolist()) for name, value in arrays[key].items()}
            assert dataset[key] == expected
        assert dataset.__getitems__([5, 0, 5]) == expected
    assert made == [(sorted(arrays[5]), "float32")] * 3
