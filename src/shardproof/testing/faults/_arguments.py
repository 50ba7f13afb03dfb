"""Refuse wrong arguments, in one short line, before any work.

This module imports nothing of shardproof, and nothing that a test may have replaced.
"""

import math


def expect(name: str, value: object, *kinds: type) -> None:
    """Raise a TypeError for what is of none of these types; True and False are no numbers."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name}: expected {expected}, found {value!r}")


def expect_count(name: str, value: int, least: int) -> None:
    """Raise a TypeError for what is no integer, a ValueError for what is below ``least``."""
    expect(name, value, int)
    if value < least:
        raise ValueError(f"{name}: expected {least} or more, found {value}")


def expect_number(name: str, value: float, most: float = math.inf) -> None:
    """Raise a TypeError for no number; a ValueError if it is negative, NaN, or too large."""
    expect(name, value, int, float)
    if not 0 <= value <= most or value == math.inf:
        limits = "a finite number, 0 or more" if most == math.inf else f"0 to {most:.0f}"
        raise ValueError(f"{name}: expected {limits}, found {value}")
