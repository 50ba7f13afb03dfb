"""Counts, as they stand in saev's files."""

from typing import Annotated

import msgspec

__all__ = ["MAX_COUNT", "Count", "Positive", "refuse_count"]

MAX_COUNT = 2**53
"""Exact in every JSON reader (RFC 8259, section 6)."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]


def refuse_count(name: str, value: object, *, at_least: int) -> None:
    """Raise for what is no count: a `TypeError` or a `ValueError` that names it."""
    if type(value) is not int:
        raise TypeError(f"{name}: expected int, found {type(value).__name__}")
    if not at_least <= value <= MAX_COUNT:
        raise ValueError(f"{name}: expected {at_least} to {MAX_COUNT}, found {value}")
