"""Whole checkpoints of given arrays, as the library saves them, and what memory that takes."""

import contextlib
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping
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


class Lazy(Mapping):
    """Arrays by name, each of which is made when it is asked for."""

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._names, self.make = [*names], make

    def __getitem__(self, name: str) -> Any:
        return self.make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@contextlib.contextmanager
def peak_below(n_bytes: int) -> Iterator[None]:
    """See that all that is done in it has at most so much memory at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < n_bytes
    finally:
        tracemalloc.stop()
