"""Counts, as they stand in saev's files."""

from typing import Annotated

import msgspec

from shardproof._base.arguments import as_int

__all__ = ["MAX_COUNT", "Count", "Positive", "count_of"]

MAX_COUNT = 2**53
"""Exact in every JSON reader (RFC 8259, section 6)."""

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)]


def count_of(name: str, value: object, *, at_least: int) -> int:
    """Return a count as Python's; raise `TypeError` or `ValueError` for what is none."""
    count = as_int(name, value)
    if not at_least <= count <= MAX_COUNT:
        raise ValueError(f"{name}: expected {at_least} to {MAX_COUNT}, found {count}")
    return count
