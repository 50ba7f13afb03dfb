"""The shuffled loader's order: decided by seed and epoch, by nothing else."""

import hashlib

import numpy as np
import pytest

from shardproof import ShuffledDataLoader
from shardproof.loaders.order._orders import permutation
from tests.helpers.loading import counted, flat, taken
from tests.helpers.memmaps import rows

POOLS = pytest.mark.parametrize("buffer_size", [24, 64, None])


@pytest.fixture
def path(shards_dir_factory):
    return shards_dir_factory(n_shards=5, examples_per_shard=8, labels=True)


def order(path, **options):
    options = {"layer": 6, "batch_size": 4, "buffer_size": 64} | options
    epoch = options.pop("epoch", 0)
    loader = ShuffledDataLoader(path, **options)
    loader.set_epoch(epoch)
    return [row[1:4] for row in flat(taken(loader, options["layer"]))]


@POOLS
def test_threads_do_not_matter(path, buffer_size):
    orders = [order(path, workers=n, buffer_size=buffer_size) for n in (1, 2, 5)]
    assert orders[0] == orders[1] == orders[2]


def test_the_order_is_a_promise():
    """Saved states must mean the same order in every version: this digest may never change."""
    text = ",".join(map(str, permutation(1000, 17, 0).tolist()))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "99b330d4d012e5c038b32abb45e80c5d512c6111d08b3764179ef9fd94edae51"


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 255, 256, 257, 10_000])
def test_a_permutation_has_each_number_once(n):
    assert sorted(permutation(n, 1, 2).tolist()) == list(range(n))


def test_permutations_are_evenly_spread():
    """Each of four numbers is at each place equally often: 1250 times of 5000, +- 5 sigma."""
    found = np.array([permutation(4, seed) for seed in range(5000)])
    counts = np.array([np.bincount(column, minlength=4) for column in found.T])
    assert (abs(counts - 1250) < 5 * np.sqrt(5000 * 0.25 * 0.75)).all()


def test_rows_leave_their_examples(path):
    """Rows of many examples in each batch, and not those of one after the other."""
    found = order(path, batch_size=8, buffer_size=2 * 8 * 6)
    batches = [found[at : at + 8] for at in range(0, len(found), 8)]
    assert np.mean([len({row[0] for row in batch}) for batch in batches[:-1]]) > 5
    whole = order(path, buffer_size=None)
    assert whole != sorted(whole)


@pytest.mark.parametrize("buffer_size", [64, None])
@pytest.mark.parametrize("tokens", ["content", "all", "special"])
@pytest.mark.parametrize("layer", [6, "all"])
def test_labels_to_ignore(path, buffer_size, tokens, layer):
    expected = rows(path, layer, tokens)
    labels = sorted({row[4] for row in expected})
    for ignored in ([labels[0]], labels[1:], labels, [], [255]):
        loader = ShuffledDataLoader(
            path,
            layer=layer,
            tokens=tokens,
            batch_size=5,
            buffer_size=buffer_size,
            ignore_labels=ignored,
        )
        found = flat(taken(loader, layer))
        assert counted(found) == counted([row for row in expected if row[4] not in ignored])
        assert loader.n_samples == len(found)


def test_what_is_ignored_is_not_read(path):
    """A shard whose rows are all ignored may even be gone by then."""
    labels = np.zeros((39, 3), np.uint8)
    labels[8:16] = 7
    (path / "labels.bin").write_bytes(labels.tobytes())
    loader = ShuffledDataLoader(path, layer=6, ignore_labels=[7])
    (path / "acts000001.bin").unlink()
    assert {row[1] for row in flat(taken(loader, 6))} == {*range(8), *range(16, 39)}


@pytest.mark.parametrize(
    ("buffer_size", "digest"),
    [(64, "be302ebbc652037f"), (None, "b20fcea3dc193881")],
    ids=["pool", "permutation"],
)
def test_the_whole_order_is_a_promise(path, buffer_size, digest):
    found = order(path, buffer_size=buffer_size, epoch=3, layer="all", tokens="all")
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == digest
