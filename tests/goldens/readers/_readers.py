"""The readers, by the cases that they read."""

from collections.abc import Callable, Iterable
from pathlib import Path

Reader = Callable[[Path], Iterable[object]]
"""Reads by the real library all samples of a directory; what it raises is why it refuses."""

READERS: dict[str, Reader] = {}


def reader(*names: str) -> Callable[[Reader], Reader]:
    def register(read: Reader) -> Reader:
        READERS.update(dict.fromkeys(names, read))
        return read

    return register
