"""Whole checkpoints of given arrays, as the library saves them, and what memory that takes."""

import contextlib
import tracemalloc
from collections.abc import Iterator
from typing import Any

from shardproof import MultiShardSaver


def saved(prefix, ranks, *, algorithm="sha256", overwrite=False, **said) -> Any:
    """Save what each rank has, and what the metadata say; return the prefix."""
    saver, world_size = MultiShardSaver(algorithm=algorithm, sync=False), 0
    for rank, arrays in enumerate(ranks):
        saver.save_shard(prefix, rank, arrays, overwrite=overwrite)
        world_size = rank + 1
    saver.save_metadata(prefix, world_size=world_size, **said)
    return prefix


@contextlib.contextmanager
def peak_below(n_bytes: int) -> Iterator[None]:
    """See that all that is done in it has at most so much memory at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < n_bytes
    finally:
        tracemalloc.stop()
