"""How a probe is asked about some bytes."""

import tempfile
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def asked(look: Callable[[int, int], T], data: bytes) -> T:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return look(file.fileno(), len(data))
