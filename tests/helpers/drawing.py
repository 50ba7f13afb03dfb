"""What a property test would see of a strategy."""

import contextlib
from typing import Any

from hypothesis import Phase, given, seed, settings

__all__ = ["drawn", "drawn_until", "examples"]

_N_STARTS = 6
_MOST_STARTS = 60


def examples(n: int) -> settings:
    """Return settings with so many examples where the profile has a hundred, else in proportion."""
    return settings(max_examples=max(1, n * settings().max_examples // 100))


def drawn(strategy, n_examples=300, *, start=None) -> list[Any]:
    """Return what a strategy gives to a test, from one start, or in equal parts from six."""
    if start is None:
        parts = [drawn(strategy, n_examples // _N_STARTS, start=part) for part in range(_N_STARTS)]
        return [value for part in parts for value in part]
    found: list[Any] = []
    test = given(strategy)(lambda value: found.append(value))  # noqa: PLW0108 - no builtins there
    many = settings(max_examples=n_examples, database=None, deadline=None, phases=[Phase.generate])
    many(seed(start)(test))()
    return found


def drawn_until(check, strategy, n_examples=150) -> None:
    """Draw from one start after the other until a check of all that was drawn passes."""
    values: list[Any] = []
    for start in range(_MOST_STARTS):
        values += drawn(strategy, n_examples, start=start)
        with contextlib.suppress(AssertionError):
            check(values)
            return
    check(values)
