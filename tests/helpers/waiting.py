"""Wait until something is so, for a minute at most."""

import time
from collections.abc import Callable

__all__ = ["until"]


def until(condition: Callable[[], object]) -> None:
    """Return as soon as a condition holds; it is asked each millisecond."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(1e-3)
