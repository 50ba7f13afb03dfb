"""How a probe is asked about some bytes."""

import tempfile
from collections.abc import Callable
from typing import TypeVar

from shardproof._base.opening import Descriptor

T = TypeVar("T")


def asked(look: Callable[[Descriptor, int], T], data: bytes) -> T:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return look(Descriptor(file.fileno()), len(data))
