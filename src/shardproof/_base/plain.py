"""Numbers and texts of arguments, be they numpy's or an enumeration's, as Python's; in range."""

import math
import operator
import reprlib
import sys
from numbers import Integral, Rational, Real
from typing import Any

from shardproof._base.messages import shown

MAX_SHOWN = 100
"""Characters of a value in a message."""

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = MAX_SHOWN


def as_int(name: str, value: object) -> int:
    """Return an integer, be it numpy's, as Python's."""
    number = plain_number(value)
    if type(number) is not int:
        raise TypeError(f"{name}: expected int, found {shown_value(value)}")
    return number


def count(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return an integer between two limits, be it numpy's, as Python's."""
    found = as_int(name, value)
    if found < least or (most is not None and found > most):
        expected = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name}: expected {expected}, found {shown_value(found)}")
    return found


def number(name: str, value: object, least: float = 0.0) -> float:
    """Return a finite number that is at least so large, be it numpy's, as Python's."""
    found = plain_number(value)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{name}: expected a number, found {shown_value(value)}")
    if not least <= found <= sys.float_info.max:  # an integer may be more than a float can hold
        expected = f"a finite number, {least:g} or more"
        if least <= found < math.inf:
            expected = f"{least:g} to {sys.float_info.max:g}"
        raise ValueError(f"{name}: expected {expected}, found {shown_value(found)}")
    return found


def rank_of(rank: object, world_size: object) -> tuple[int, int]:
    """Return rank and world size as Python's integers; refuse a rank that there can't be."""
    n_ranks = count("world_size", world_size, 1)
    return count("rank", rank, 0, n_ranks - 1), n_ranks


def plain_number(value: Any) -> Any:
    """Return a number, such as one of numpy, as Python's; anything else as it is."""
    if isinstance(value, (bool, float, str)) or type(value) is int:
        return value
    if isinstance(value, Integral):
        return operator.index(value)
    if isinstance(value, Real) and not isinstance(value, Rational):  # which no float may hold
        return float(value)
    return value


def plain_text(text: str) -> str:
    """Return a text of a subclass, such as numpy's, as Python's; of an enum's member its value."""
    # What writes JSON takes no other, and an enum's own ``__str__`` may return its name.
    return str.__str__(text)


def shown_value(value: object) -> str:
    """Return a value for a message, cut; whatever its ``repr`` does."""
    try:
        return shown(_REPR.repr(value), MAX_SHOWN)
    except ValueError:  # of an integer with very many digits
        return f"<{type(value).__name__}>"
