"""The testing kit's contracts for loaders, kept by ours."""

import functools

import pytest

import shardproof
from shardproof.testing.contracts import (
    ResumableLoaderContract,
    SeededLoaderContract,
    ShardLoaderContract,
)

pytestmark = pytest.mark.slow


def rows(loader):
    """Batches taken apart: what the contracts call samples."""
    for batch in loader:
        for row in range(len(batch["act"])):
            yield {name: values[row] for name, values in batch.items()}


class Patient:
    """On a machine that many share, nothing is a hang before a minute has passed."""

    deadline = 60.0


class TestOrdered(Patient, ResumableLoaderContract):
    """Of batches: that is what a state counts."""

    @pytest.fixture
    def open_loader(self):
        return functools.partial(shardproof.OrderedDataLoader, layer="all", batch_size=16)


@pytest.mark.exhaustive
class TestOrderedTokens(Patient, ShardLoaderContract):
    """One layer, and no special token: rows between which others lie."""

    samples = staticmethod(rows)

    @pytest.fixture
    def open_loader(self):
        return functools.partial(shardproof.OrderedDataLoader, layer=11, batch_size=16)


class TestShuffled(Patient, ResumableLoaderContract):
    @pytest.fixture
    def open_loader(self):
        return functools.partial(
            shardproof.ShuffledDataLoader, layer=6, tokens="all", batch_size=8, buffer_size=64
        )


class TestShuffledSeeds(Patient, SeededLoaderContract):
    samples = staticmethod(rows)

    @pytest.fixture(params=[64, pytest.param(None, marks=pytest.mark.exhaustive)])
    def open_seeded_loader(self, request):
        return lambda path, seed: shardproof.ShuffledDataLoader(
            path, layer=6, batch_size=8, buffer_size=request.param, seed=seed
        )


class TestIndexed(Patient, ShardLoaderContract):
    @pytest.fixture
    def open_loader(self):
        return functools.partial(shardproof.IndexedDataset, layer=6)
