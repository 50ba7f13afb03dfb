"""What a property test would see of a strategy."""

import contextlib
from collections.abc import Callable
from typing import Any

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

__all__ = ["drawn", "drawn_until", "examples"]

_N_STARTS = 6
_MOST_STARTS = 60


def examples(n: int) -> settings:
    """Return settings with so many examples where the profile has a hundred, else in proportion."""
    return settings(max_examples=max(1, n * settings().max_examples // 100))


def drawn(
    strategy: st.SearchStrategy[Any], n_examples: int = 300, *, start: int | None = None
) -> list[Any]:
    """Return what a strategy gives to a test, from one start, or in equal parts from six.

    What hypothesis tries first it tries often: of one start, what comes rarely may be missing.
    """
    if start is None:
        parts = [drawn(strategy, n_examples // _N_STARTS, start=part) for part in range(_N_STARTS)]
        return [value for part in parts for value in part]
    found: list[Any] = []
    test = given(strategy)(lambda value: found.append(value))  # noqa: PLW0108 - no builtins there
    many = settings(max_examples=n_examples, database=None, deadline=None, phases=[Phase.generate])
    many(seed(start)(test))()
    return found


def drawn_until(
    check: Callable[[list[Any]], None], strategy: st.SearchStrategy[Any], n_examples: int = 150
) -> None:
    """Draw from one start after the other until a check of all that was drawn passes.

    What it still lacks after sixty of them hardly ever comes: the check fails.
    """
    values: list[Any] = []
    for start in range(_MOST_STARTS):
        values += drawn(strategy, n_examples, start=start)
        with contextlib.suppress(AssertionError):
            check(values)
            return
    check(values)
