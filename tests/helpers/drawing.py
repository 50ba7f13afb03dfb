"""What a property test would see of a strategy."""

from typing import Any

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

__all__ = ["drawn"]

N_STARTS = 6


def drawn(
    strategy: st.SearchStrategy[Any], n_examples: int = 300, *, start: int | None = None
) -> list[Any]:
    """Return what a strategy gives to a test, from one start, or in equal parts from six.

    What hypothesis tries first it tries often: of one start, what comes rarely may be missing.
    """
    if start is None:
        parts = [drawn(strategy, n_examples // N_STARTS, start=part) for part in range(N_STARTS)]
        return [value for part in parts for value in part]
    found: list[Any] = []
    test = given(strategy)(lambda value: found.append(value))  # noqa: PLW0108 - no builtins there
    many = settings(max_examples=n_examples, database=None, deadline=None, phases=[Phase.generate])
    many(seed(start)(test))()
    return found
