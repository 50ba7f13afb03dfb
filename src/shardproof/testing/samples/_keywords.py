"""Arguments of what makes samples: an error names a wrong one by the word that was written."""

import difflib
import math
import operator
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any, TypeVar

S = TypeVar("S", bound=str)


def integer(name: str, given: Any, *, at_least: int | None = None) -> int:
    """Return an integer, numpy's too, as one of Python's; refuse what is none or too small."""
    found = _as_int(given)
    if found is None:
        raise TypeError(f"{name}: expected int, found {given!r}")
    if at_least is not None and found < at_least:
        raise ValueError(f"{name}: expected {at_least} or more, found {found}")
    return found


def _as_int(given: Any) -> int | None:
    # By its kind: numpy 1 takes a boolean of its own for an index, with a warning.
    is_int = isinstance(given, Integral) and not isinstance(given, bool)
    return operator.index(given) if is_int else None


def expect(name: str, value: object, *kinds: type) -> None:
    """Raise a TypeError for what is of none of these types; True and False are no numbers."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{name}: expected {expected}, found {value!r}")


def expect_number(name: str, value: float, most: float = math.inf) -> None:
    """Raise a TypeError for no number; a ValueError if it is negative, NaN, or too large."""
    expect(name, value, int, float)
    if not 0 <= value <= most or value == math.inf:
        raise ValueError(f"{name}: expected 0 or more, and at most {most:.0f}, found {value}")


def integers(name: str, given: Any, *, what: str = "indices") -> tuple[int, ...]:
    """Return integers from a list, an array or another iterable; none for None."""
    if given is None:
        return ()
    try:
        if isinstance(given, str | bytes):
            raise TypeError
        items = tuple(given)
    except TypeError:
        raise TypeError(f"{name}: expected {what}, such as [1], found {given!r}") from None
    found = tuple(map(_as_int, items))
    if None in found:
        raise TypeError(f"{name}: expected {what} of type int, found {items[found.index(None)]!r}")
    return found  # type: ignore[return-value]


def one_of(name: str, given: Any, known: Iterable[S]) -> S:
    """Return the word that is given, as it is among those to choose from; refuse another one."""
    words = [*known]
    if not isinstance(given, str):  # nor compared: an array has no truth value
        raise ValueError(f"{name}: expected one of {', '.join(words)}, found {given!r}")
    if given not in words:
        raise ValueError(f"{name}: {_expected(str(given), words)}")
    return words[words.index(given)]


def refuse_unknown(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError for the first keyword that a function does not have, if there is one."""
    for name in sorted({*given} - {*known}):
        raise TypeError(f"{function}: {_expected(name, sorted(known))}")


def _expected(found: str, known: Sequence[str]) -> str:
    near, likely = (difflib.get_close_matches(found, known, 1, cutoff) for cutoff in (0.9, 0.7))
    # One begins with the other: `missing` and `missing_ranks`.
    starts = (f"{found}_", f"{found}-")
    alike = [each for each in known if each.startswith(starts) or found.startswith(f"{each}_")]
    for name in [*near, *alike, *likely]:
        return f"there is no {found!r}; did you mean '{name}'?"
    return f"expected one of {', '.join(known)}, found {found!r}"
