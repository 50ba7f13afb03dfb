"""Refuse wrong arguments of public functions, before any work, in one short line.

beartype decides, and is imported by the first value that is not of just the class, or one of the
words, that a hint names. What is of a wrong type is a `TypeError`; a text that is none of the words
to choose from is a `ValueError`.
"""

import functools
import itertools
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar, cast

from shardproof._base.messages import shown
from shardproof._base.plain import MAX_SHOWN, plain_number, shown_value

F = TypeVar("F", bound=Callable[..., Any])

_MAX_ITEMS = 64
_SECRETS = {"headers", "token"}


def checked(function: F) -> F:
    """Make a function refuse what its hints rule out; not for per-file loops, nor data from disk.

    Where a hint asks for a number, one of numpy reaches the function as Python's, and an int will
    do for a float; True and False are no numbers. A coroutine function refuses when it is called.
    """
    positions = function.__code__.co_varnames[: function.__code__.co_argcount]

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        by_position = [_accept(function, *each) for each in zip(positions, args, strict=False)]
        by_name = {name: _accept(function, name, value) for name, value in keywords.items()}
        return function(*by_position, *args[len(positions) :], **by_name)

    return cast("F", call)


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
    """Return the members of a union; else the hint itself."""
    is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
    return tuple(itertools.chain(*map(_choices, typing.get_args(hint)))) if is_union else (hint,)


def _accept(owner: Any, name: str, value: Any) -> Any:
    """Return an argument or a field as it is used; raise if its hint rules it out."""
    choices = _hints(owner).get(name, (Any,))
    plain = plain_number(value) if int in choices or float in choices else value
    if _fits(plain, choices):
        return plain
    found = type(value).__name__ if name in _SECRETS else shown_value(value)
    called = owner.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")
    has_words = any(typing.get_origin(choice) is Literal for choice in choices)
    kind = ValueError if has_words and isinstance(value, str) else TypeError
    expected = shown(_words(choices), MAX_SHOWN)
    raise kind(f"{called}(): {name}: expected {expected}, found {found}")


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
