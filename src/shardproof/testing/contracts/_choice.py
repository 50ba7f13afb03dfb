"""Members of an enumeration, as callers of strategies name them."""

from collections.abc import Collection
from enum import StrEnum
from typing import TypeVar

__all__ = ["chosen"]

E = TypeVar("E", bound=StrEnum)


def chosen(name: str, values: Collection[str], kind: type[E]) -> list[E]:
    """Return members of an enumeration in its own order, which strategies shrink along."""
    found = {kind(value) for value in values}
    if not found:
        raise ValueError(f"{name}: expected one or more, found none")
    return [member for member in kind if member in found]
