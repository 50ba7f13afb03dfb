"""Refuse wrong arguments, before any work, in one short line; make numbers those of Python.

beartype decides, and is imported by the first value that is not of just the class, or one of the
words, that a hint names. What is of a wrong type is a `TypeError`; a text that is none of the words
to choose from is a `ValueError`.
"""

import functools
import inspect
import itertools
import math
import operator
import re
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Rational, Real
from typing import Any, ClassVar, Literal, TypeVar, cast

from shardproof._base.messages import quoted, shown
from shardproof.errors import ShardproofError

__tracebackhide__ = True  # pytest shows the caller's line

F = TypeVar("F", bound=Callable[..., Any])

_MAX_ITEMS = 64
_MAX_SHOWN = 100  # characters of a value in a message
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SECRETS = {"headers", "token"}
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _MAX_SHOWN


def checked(function: F) -> F:
    """Make a function refuse what its hints rule out; not for loops over files, or their data."""
    # A number of numpy reaches the function as Python's, and an int will do for a float; True and
    # False are no numbers. An error of ours says all there is to say: its traceback ends here.
    code = function.__code__
    positions = code.co_varnames[: code.co_argcount]
    names = {*code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if not (names.issuperset(keywords) or code.co_flags & inspect.CO_VARKEYWORDS):
            raise _unknown(function, min(keywords.keys() - names), names)
        by_position = [_accept(function, *each) for each in zip(positions, args, strict=False)]
        by_name = {name: _accept(function, name, value) for name, value in keywords.items()}
        try:
            return function(*by_position, *args[len(positions) :], **by_name)
        except ShardproofError as error:
            error.__traceback__ = None
            raise

    return cast("F", call)


def _unknown(function: Any, name: str, names: Iterable[str]) -> TypeError:
    """Return the error of a keyword that there is not, with the nearest one that there is."""
    import difflib  # noqa: PLC0415 - only for an error

    words = sorted(each for each in {*names} - {"self", "cls"} if not each.startswith("_"))
    near = difflib.get_close_matches(name, words, 1)
    expected = f"did you mean {quoted(near[0])}?" if near else f"expected one of {', '.join(words)}"
    return TypeError(f"{_called(function)}(): there is no {quoted(name)}; {expected}")


def _called(function: Any) -> str:
    name: str = function.__qualname__
    return name.rpartition("<locals>.")[2].removesuffix(".__init__")


def accepted_fields(owner: Any) -> dict[str, Any]:
    """Return what an object's fields hold, by name, with numbers of numpy as Python's."""
    kind: Any = type(owner)
    return {name: _accept(kind, name, getattr(owner, name)) for name in _hints(kind)}


@functools.cache
def _hints(owner: Any) -> dict[str, tuple[Any, ...]]:
    """Return what each hint lets one choose from; late: it may name a class that comes after it."""
    hints = typing.get_type_hints(owner).items()
    return {name: _choices(hint) for name, hint in hints if typing.get_origin(hint) is not ClassVar}


def _choices(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, or of what bounds a variable; else the hint itself."""
    hint = hint.__bound__ if isinstance(hint, TypeVar) else hint
    is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return tuple(itertools.chain(*map(_choices, typing.get_args(hint)))) if is_union else (hint,)


def _accept(owner: Any, name: str, value: Any) -> Any:
    """Return an argument or a field as it is used; raise if its hint rules it out."""
    choices = _hints(owner).get(name, (Any,))
    plain = plain_number(value) if int in choices or float in choices else value
    if _fits(plain, choices):
        return plain
    found = type(value).__name__ if name in _SECRETS else _shown(value)
    has_words = any(typing.get_origin(choice) is Literal for choice in choices)
    kind = ValueError if has_words and isinstance(value, str) else TypeError
    expected = shown(_words(choices), _MAX_SHOWN)
    raise kind(f"{_called(owner)}(): {name}: expected {expected}, found {found}")


def _fits(value: Any, choices: Sequence[Any]) -> bool:
    return type(value) in choices or any(_fits_one(value, choice) for choice in choices)


def _fits_one(value: Any, choice: Any) -> bool:
    kind, items = typing.get_origin(choice), typing.get_args(choice)
    if kind is Literal:
        return isinstance(value, str) and value in items
    if kind is Sequence or items[1:] == (...,):
        # beartype looks at one item, which it picks by the global random generator.
        return isinstance(value, kind) and all(
            _fits(item, _choices(items[0])) for item in itertools.islice(value, _MAX_ITEMS)
        )
    is_no_number = isinstance(value, bool) and choice in {int, float}
    return choice is Any or (not is_no_number and _beartype()(value, choice))


@functools.cache
def _beartype() -> Callable[[Any, Any], bool]:
    """Return what decides; it takes a tenth of a second to import."""
    from beartype import BeartypeConf  # noqa: PLC0415 - as said
    from beartype.door import is_bearable  # noqa: PLC0415 - as said

    # An int will do for a float.
    return functools.partial(is_bearable, conf=BeartypeConf(is_pep484_tower=True))


def _words(choices: Sequence[Any]) -> str:
    """Return what there is to choose from: ``'present', 'complete' or 'valid'``."""
    words: list[str] = []
    for choice in choices:
        if typing.get_origin(choice) is Literal:
            words += map(repr, typing.get_args(choice))
        elif isinstance(choice, type):
            words.append("None" if choice is types.NoneType else choice.__name__)
        else:
            words.append(re.sub(r"\b(?:\w+\.)+", "", str(choice)))  # without its module
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def as_int(name: str, value: object) -> int:
    """Return an integer, be it numpy's, as Python's."""
    number = plain_number(value)
    if type(number) is not int:
        raise TypeError(f"{name}: expected int, found {_shown(value)}")
    return number


def count(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """Return an integer between two limits, be it numpy's, as Python's."""
    found = as_int(name, value)
    if found < least or (most is not None and found > most):
        expected = f"{least} or more" if most is None else f"{least} to {most}"
        raise ValueError(f"{name}: expected {expected}, found {_shown(found)}")
    return found


def number(name: str, value: object, least: float = 0.0) -> float:
    """Return a finite number that is at least so large, be it numpy's, as Python's."""
    found = plain_number(value)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{name}: expected a number, found {_shown(value)}")
    if not least <= found <= sys.float_info.max:  # an integer may be more than a float can hold
        expected = f"a finite number, {least:g} or more"
        if least <= found < math.inf:
            expected = f"{least:g} to {sys.float_info.max:g}"
        raise ValueError(f"{name}: expected {expected}, found {_shown(found)}")
    return found


def duration(name: str, value: str | float) -> float:
    """Return a time in seconds: of a number, or of text such as ``"60d"``, in s, m, h, d or w."""
    if isinstance(value, str):
        match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])", value.strip())
        if match is None:
            raise ValueError(f"{name}: expected a time such as '60d', found {quoted(value)}")
        value = float(match[1]) * _SECONDS[match[2]]
    return number(name, value)


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


def _shown(value: object) -> str:
    """Return a value for a message, cut; whatever its ``repr`` does."""
    try:
        return shown(_REPR.repr(value), _MAX_SHOWN)
    except ValueError:  # of an integer with very many digits
        return f"<{type(value).__name__}>"
