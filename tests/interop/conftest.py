"""What every test of an epoch in torch's workers is given."""

import gc
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def shards_dir(make_shards_dir) -> Path:
    return make_shards_dir(12)


@pytest.fixture
def no_worker_stays() -> Iterator[None]:
    yield
    gc.collect()
    left = multiprocessing.active_children()
    for child in left:  # so that one failure is not that of the next test too
        child.kill()
        child.join()
    assert left == []
