"""What each state of a shard does to the loader; the contract asks for the rest."""

import os

import pytest
from rowstore import Rows

from shardproof.testing import reported_kinds, wrong_kinds
from shardproof.testing.contracts import ShardLoaderContract


def test_every_row_is_delivered(make_shards_dir):
    assert len(list(Rows(make_shards_dir(n_shards=3)))) == 3 * 4 * 2 * 4  # examples, layers, tokens


@pytest.mark.parametrize("state", ["missing", "empty", "truncated", "unreadable", "sparse"])
def test_damage_is_named_before_the_first_row(make_shards_dir, state):
    path = make_shards_dir(n_shards=3, **{state: [1]})
    with pytest.raises(Exception) as error:
        Rows(path)
    assert str(path / "acts000001.bin") in str(error.value)
    assert not wrong_kinds(reported_kinds(error.value, path / "acts000001.bin"), state)


def test_a_shard_that_is_cut_later_is_named(make_shards_dir):
    path = make_shards_dir(n_shards=3)
    rows = iter(Rows(path))
    next(rows)
    os.truncate(path / "acts000002.bin", 8)
    with pytest.raises(EOFError, match=r"acts000002\.bin"):
        list(rows)


class TestContract(ShardLoaderContract):
    """29 tests more: `pytest -k Contract`."""

    strength = "safe"
    deadline = 60.0

    @pytest.fixture
    def open_loader(self):
        return Rows
