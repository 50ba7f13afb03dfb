"""Refuse wrong arguments of public functions, before any work, in one short line.

What is of a wrong type is a `TypeError`; what is out of range, or none of the words to choose from,
is a `ValueError`. Of nearly every hint `isinstance` says whether a value fits; beartype says it of
the rest, and is imported then, since that takes longer than to validate a thousand files.
"""

import functools
import inspect
import itertools
import math
import operator
import os
import re
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Integral, Rational, Real
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

_MAX_SHOWN = 100
_SECRETS = {"headers", "token"}
_MAX_ITEMS = 64
_PACKAGE = __name__.partition(".")[0]
_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _MAX_SHOWN


def checked(function: F) -> F:
    """Make a function refuse what its hints rule out; not for per-file loops, nor data from disk.

    A text that is none of those to choose from is a `ValueError`, all else a `TypeError`. Where a
    hint asks for a number, numpy's reach the function as Python's, an int will do for a float, and
    True and False are none.
    """
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def later(*args: Any, **keywords: Any) -> Any:
            args, keywords = _accepted(function, args, keywords)
            return await function(*args, **keywords)

        return cast("F", later)

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        args, keywords = _accepted(function, args, keywords)
        return function(*args, **keywords)

    return cast("F", call)


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
    """Return a text of a subclass, such as numpy's, as Python's; of an enum's member its value.

    What writes JSON takes no other, and an enum's own ``__str__`` may return its name.
    """
    return str.__str__(text)


def accepted_fields(owner: Any) -> dict[str, Any]:
    """Return what an object's fields hold, by name, with numbers of numpy as Python's."""
    kind = type(owner)
    return {
        name: argument.accept(getattr(owner, name), lambda: _name_of_class(kind), name)
        for name, argument in _fields_of(kind).items()  # type: ignore[arg-type] # classes have a hash
    }


class _Argument(NamedTuple):
    """What a hint asks for."""

    hint: Any
    numbers: frozenset[type]  # which of int, float and bool will do

    @classmethod
    def of(cls, hint: Any) -> "_Argument":
        classes = (choice for choice in _choices(hint) if isinstance(choice, type))
        return cls(hint, frozenset(classes) & {int, float, bool})

    def accept(self, value: Any, name_of_owner: Callable[[], str], name: str) -> Any:
        """Return a value as it is used; raise `TypeError` for one that won't do."""
        plain = plain_number(value) if self.numbers else value
        is_other_number = isinstance(value, bool) and self.numbers and bool not in self.numbers
        if not is_other_number and _fits(plain, self.hint):
            return plain
        found = type(value).__name__ if name in _SECRETS else _shown(value)
        problem = f"{name}: expected {_cut(_expected(self.hint))}, found {found}"
        literals = (hint for hint in _choices(self.hint) if typing.get_origin(hint) is Literal)
        choices = itertools.chain.from_iterable(map(typing.get_args, literals))
        words = [choice for choice in choices if isinstance(choice, str)]
        if words and isinstance(value, str):
            import difflib  # noqa: PLC0415 - only for an error

            near = difflib.get_close_matches(value[:_MAX_SHOWN], words, 1)
            hint = f"; did you mean {_shown(near[0])}?" if near else ""
            raise ValueError(f"{name_of_owner()}(): {problem}{hint}")
        raise TypeError(f"{name_of_owner()}(): {problem}")


def _fits(value: Any, hint: Any) -> bool:
    return any(_fits_choice(value, choice) for choice in _choices_to_try(hint))


@functools.cache
def _choices_to_try(hint: Any) -> Sequence[Any]:
    """Return what a hint lets one choose from; what only beartype knows comes last."""
    return sorted(_choices(hint), key=lambda choice: _class_of(choice) is None)


def _fits_choice(value: Any, choice: Any) -> bool:
    kind = _class_of(choice)
    if kind is None:
        return _fits_for_beartype(value, choice)
    if not isinstance(value, kind):
        return False
    items = typing.get_args(choice)
    if kind is str and items:
        return value in items
    if kind in {Sequence, tuple} and items:
        # The first items, since beartype picks one by the global random generator.
        return all(_fits(item, items[0]) for item in itertools.islice(value, _MAX_ITEMS))
    return True


@functools.cache
def _class_of(choice: Any) -> Any:
    """Return of which class a value must be that fits, or of which of several; None if unknown.

    Which word it is, and what is in a sequence, is to be seen still.
    """
    origin, items = typing.get_origin(choice), typing.get_args(choice)
    if origin is Literal:
        return str if all(isinstance(item, str) for item in items) else None
    if origin in _DECIDED_BY_CLASS or items[1:] == (...,):
        return origin
    if choice is Any:
        return object
    # Protocols and the like are classes too, whose own class is one of typing.
    if items or not isinstance(choice, type) or type(choice).__module__ == "typing":
        return None
    return (float, int) if choice is float else choice


_DECIDED_BY_CLASS = {Callable, Sequence, os.PathLike}


def _fits_for_beartype(value: Any, hint: Any) -> bool:
    from beartype import BeartypeConf  # noqa: PLC0415 - for few hints
    from beartype.door import is_bearable  # noqa: PLC0415 - as above

    # An int will do for a float.
    return is_bearable(value, hint, conf=BeartypeConf(is_pep484_tower=True))


def _accepted(
    function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments as the function gets them; raise `TypeError` for the first wrong one."""
    positions, arguments = _signature_of(function)

    def accepted(name: str, value: Any) -> Any:
        argument = arguments.get(name)
        if argument is None:
            return value
        return argument.accept(value, lambda: _name_of_function(function, args), name)

    by_position = *map(accepted, positions, args), *args[len(positions) :]
    return by_position, {name: accepted(name, value) for name, value in keywords.items()}


@functools.cache
def _signature_of(function: Callable[..., Any]) -> tuple[Sequence[str], Mapping[str, _Argument]]:
    """Return the names of the arguments that may be given by position, and what hints ask for.

    Late: a hint may name a class that is defined after the function.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    hints = typing.get_type_hints(function)
    arguments = {name: _Argument.of(hints[name]) for name in names if name in hints}
    return names[: code.co_argcount], arguments


@functools.cache
def _fields_of(kind: type) -> Mapping[str, _Argument]:
    hints = typing.get_type_hints(kind).items()
    return {
        name: _Argument.of(hint) for name, hint in hints if typing.get_origin(hint) is not ClassVar
    }


def _choices(hint: Any) -> Iterator[Any]:
    """Yield what a hint lets one choose from: the members of a union, or the hint itself."""
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        for member in typing.get_args(hint):
            yield from _choices(member)
    else:
        yield hint


def _expected(hint: Any) -> str:
    """Return a hint in words: ``'present', 'complete' or 'valid'``."""
    words: list[str] = []
    for choice in _choices(hint):
        if typing.get_origin(choice) is Literal:
            words += map(repr, typing.get_args(choice))
        elif isinstance(choice, type) and not typing.get_args(choice):
            words.append("None" if choice is types.NoneType else choice.__name__)
        else:
            words.append(re.sub(r"\b(?:\w+\.)+", "", str(choice)))  # without its module
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _shown(value: object) -> str:
    """Return a value for a message: on one line, in ASCII, cut."""
    try:
        text = _REPR.repr(value)
    except ValueError:  # of an integer with very many digits
        text = f"<{type(value).__name__}>"
    return _cut(re.sub(r"[^ -~]", lambda found: ascii(found[0])[1:-1], text))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _name_of_function(function: Callable[..., Any], args: Sequence[Any]) -> str:
    """Return by which name users call it: ``shardproof.MultiShardSaver.save_shard``."""
    *owner, name = function.__qualname__.rpartition("<locals>.")[2].split(".")
    method = [] if name == "__init__" else [name]
    first = args[0] if args else None
    kind = first if isinstance(first, type) else type(first)
    if owner and any(map(_is_ours, kind.__mro__)):  # not a static method
        return ".".join([_name_of_class(kind), *method])
    return _public(function.__module__, [*owner, *method])


def _name_of_class(kind: type) -> str:
    """Return by which name users know a class, or the one of ours that it is made of."""
    ours = next(filter(_is_ours, kind.__mro__), kind)
    return _public(ours.__module__, [ours.__name__])


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == _PACKAGE


def _public(module: str, names: Sequence[str]) -> str:
    """Return a name as the outermost room has it that lists it among its public ones."""
    parts = [*itertools.takewhile(lambda part: not part.startswith("_"), module.split("."))]
    rooms = [".".join(parts[:n]) for n in range(1, len(parts) + 1)]
    public = {room: getattr(sys.modules.get(room), "__all__", ()) for room in rooms}
    home = next((room for room in rooms if names[0] in public[room]), rooms[-1])
    return ".".join([home, *names])
