"""What a pickle says, without doing it: nothing it names is imported, called or looked up.

A pickle is a program: a row of steps that push values on a stack and put them together (the module
`pickletools` describes each). Those that name a class or a function, call it, or set what is in an
object only write down here that they were asked to. A dictionary is its pairs in a row: nothing is
hashed, so that no key can be chosen to make it slow. Nothing is copied or walked twice either, so
that the time goes with the length of the pickle, whatever it says.
"""

import functools
import struct
import sys
from collections.abc import Callable

from shardproof._base.messages import quoted, told
from shardproof.errors import ManifestError

_MAX_STEPS = 8_000_000
"""Those of 100 000 entries: a step can take a hundred bytes of memory."""

_MAX_DEPTH = 1000
_MAX_FIELDS = 64
_DATA_MODULES = {"collections", "datetime", "decimal", "enum", "fractions", "pathlib", "uuid"}
"""Modules of Python whose classes stand in data."""

_DATA_NAMES = {
    *("bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list"),
    *("object", "range", "set", "slice", "str", "tuple"),
}
"""Those of its builtins that do."""

_DATA_FUNCTIONS = {"_codecs.encode", "copyreg._reconstructor", "types.SimpleNamespace"}


class Pairs(list[object]):
    """What a dictionary holds: a key, its value, the next key, ..."""

    __slots__ = ()


class PickledObject:
    """What a class or a function was to make, or itself where ``args`` is None.

    Attributes:
        name: That of the class or function, with its module.
        args: What it was to be called with.
        state: What was to be put into what it made.
    """

    __slots__ = ("args", "name", "state")

    def __init__(self, name: str, args: object = None) -> None:
        self.name = name
        self.args = args
        self.state: object = None

    def fields(self) -> dict[str, object]:
        """Return the fields that were to be set; none where the state is something else."""
        state = self.state
        if not isinstance(state, Pairs) or len(state) > 2 * _MAX_FIELDS:
            return {}
        pairs = zip(state[::2], state[1::2], strict=True)
        return {name: value for name, value in pairs if isinstance(name, str)}


def read_pickle(data: bytes, *, path: str) -> object:
    """Return what a pickle says: plain data, `Pairs` and `PickledObject`.

    Args:
        data: The pickle, of protocol 3 or above: names in older ones mean others.
        path: The file that a refusal names.
    """
    reader = _Reader(data)
    try:
        if data[:1] != _PROTOCOL:
            raise KeyError
        for _ in range(_MAX_STEPS):
            code = data[reader.at]
            reader.at += 1
            if code == _STOP:
                return reader.stack.pop()
            _STEPS[code](reader)
        problem = f"expected a pickle of at most {_MAX_STEPS} steps, found more"
    except KeyError:
        at = max(reader.at - 1, 0)
        found = quoted(data[at : at + 20])
        problem = f"expected a pickle of plain data, found {found} at byte {at}"
    except IndexError:
        problem = f"expected a whole pickle, found one that breaks off at byte {reader.at}"
    except ValueError as error:
        problem = f"expected a pickle of plain data, found at byte {reader.at}: {told(error)}"
    raise ManifestError(problem, path=path)


class _Reader:
    """What a pickle has put on its stack so far."""

    __slots__ = ("at", "data", "marks", "memo", "stack")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def take(self, n_bytes: int) -> bytes:
        """Return the next bytes."""
        end = self.at + n_bytes
        if end > len(self.data):
            raise IndexError
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def number(self, n_bytes: int) -> int:
        """Return the number that is next."""
        return int.from_bytes(self.take(n_bytes), "little")

    def since_mark(self) -> list[object]:
        """Return what is on the stack above the last mark, and take it away."""
        items, self.stack = self.stack, self.marks.pop()
        return items


def _push(value: object, reader: _Reader) -> None:
    reader.stack.append(value)


def _protocol(reader: _Reader) -> None:
    number = reader.number(1)
    if number < _LEAST_PROTOCOL:
        raise ValueError(f"protocol {number}, in which names mean others")


def _skip(n_bytes: int, reader: _Reader) -> None:
    reader.take(n_bytes)


def _push_new(kind: Callable[[], object], reader: _Reader) -> None:
    reader.stack.append(kind())


def _push_number(n_bytes: int, reader: _Reader) -> None:
    reader.stack.append(reader.number(n_bytes))


def _push_signed(n_bytes: int, reader: _Reader) -> None:
    reader.stack.append(int.from_bytes(reader.take(n_bytes), "little", signed=True))


def _push_long(reader: _Reader) -> None:
    _push_signed(reader.number(1), reader)


def _push_float(reader: _Reader) -> None:
    reader.stack.append(struct.unpack(">d", reader.take(8))[0])


def _push_text(n_bytes: int, reader: _Reader) -> None:
    text = reader.take(reader.number(n_bytes))
    reader.stack.append(text.decode("utf-8", "surrogatepass"))


def _push_bytes(n_bytes: int, reader: _Reader) -> None:
    reader.stack.append(reader.take(reader.number(n_bytes)))


def _push_tuple(n_items: int, reader: _Reader) -> None:
    if len(reader.stack) < n_items:
        raise IndexError
    reader.stack[-n_items:] = [tuple(reader.stack[-n_items:])]


def _push_all(kind: Callable[[list[object]], object], reader: _Reader) -> None:
    items = reader.since_mark()
    reader.stack.append(kind(items))


def _mark(reader: _Reader) -> None:
    if len(reader.marks) == _MAX_DEPTH:
        raise ValueError("it is nested too deep")
    reader.marks.append(reader.stack)
    reader.stack = []


def _pop(reader: _Reader) -> None:
    reader.stack.pop()


def _pop_all(reader: _Reader) -> None:
    reader.since_mark()


def _duplicate(reader: _Reader) -> None:
    reader.stack.append(reader.stack[-1])


def _memoize(reader: _Reader) -> None:
    reader.memo[len(reader.memo)] = reader.stack[-1]


def _put(n_bytes: int, reader: _Reader) -> None:
    reader.memo[reader.number(n_bytes)] = reader.stack[-1]


def _get(n_bytes: int, reader: _Reader) -> None:
    index = reader.number(n_bytes)
    if index not in reader.memo:
        raise ValueError("it refers to what is not there")
    reader.stack.append(reader.memo[index])


def _add_one(n_items: int, reader: _Reader) -> None:
    """Put one item, or a key and its value, into what is below."""
    items = reader.stack[-n_items:]
    del reader.stack[-n_items:]
    _add(items, reader)


def _add_all(reader: _Reader) -> None:
    _add(reader.since_mark(), reader)


def _add(items: list[object], reader: _Reader) -> None:
    """Put items into what is on top; what a class of its own would hold is left out."""
    into = reader.stack[-1]
    if isinstance(into, list):
        if isinstance(into, Pairs) and len(items) % 2:
            raise ValueError("a key without a value")
        into += items
    elif not isinstance(into, PickledObject):
        raise ValueError(f"items for a {type(into).__name__}")


def _name(reader: _Reader) -> None:
    name, module = reader.stack.pop(), reader.stack.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise ValueError("a name that is no text")
    _push_named(module, name, reader)


def _name_in_lines(reader: _Reader) -> None:
    module, name = (_line(reader).decode() for _ in range(2))
    _push_named(module, name, reader)


def _line(reader: _Reader) -> bytes:
    end = reader.data.find(b"\n", reader.at, reader.at + _MAX_NAME)
    if end < 0:
        raise ValueError("a name without an end")
    return reader.take(end + 1 - reader.at)[:-1]


def _push_named(module: str, name: str, reader: _Reader) -> None:
    if len(module) + len(name) > _MAX_NAME:
        raise ValueError("a name of no class")
    if _acts(module, name):
        raise ValueError(f"the name {quoted(f'{module}.{name}')}")
    reader.stack.append(PickledObject(f"{module}.{name}"))


def _acts(module: str, name: str) -> bool:
    """Whether a name of Python's own library, or one that leads there, is not that of data."""
    package, is_inner = module.partition(".")[0], "." in name
    if is_inner and name.partition(".")[0] in sys.stdlib_module_names:
        return True
    if package == "builtins":
        return name not in _DATA_NAMES
    is_data = (package in _DATA_MODULES and not is_inner) or f"{module}.{name}" in _DATA_FUNCTIONS
    return package in sys.stdlib_module_names and not is_data


def _call(reader: _Reader) -> None:
    """Write down a call: of a function, or of a class for a new object."""
    args, named = reader.stack.pop(), reader.stack.pop()
    _push_called(named, args, reader)


def _call_with_keywords(reader: _Reader) -> None:
    keywords, args, named = (reader.stack.pop() for _ in range(3))
    _push_called(named, (args, keywords), reader)


def _push_called(named: object, args: object, reader: _Reader) -> None:
    if not isinstance(named, PickledObject) or not isinstance(args, tuple):
        raise ValueError(f"a call of a {type(named).__name__}")
    reader.stack.append(PickledObject(named.name, args))


def _set_state(reader: _Reader) -> None:
    state = reader.stack.pop()
    made = reader.stack[-1]
    if not isinstance(made, PickledObject):
        raise ValueError(f"a state for a {type(made).__name__}")
    made.state = state


_STOP = ord(".")
_PROTOCOL = b"\x80"
_LEAST_PROTOCOL = 3
_MAX_NAME = 1000
_partial = functools.partial
_STEPS: dict[int, Callable[[_Reader], None]] = {
    _PROTOCOL[0]: _protocol,
    0x95: _partial(_skip, 8),  # the length of a frame
    ord("N"): _partial(_push, None),
    0x88: _partial(_push, True),
    0x89: _partial(_push, False),
    ord("K"): _partial(_push_number, 1),
    ord("M"): _partial(_push_number, 2),
    ord("J"): _partial(_push_signed, 4),
    0x8A: _push_long,
    ord("G"): _push_float,
    0x8C: _partial(_push_text, 1),
    ord("X"): _partial(_push_text, 4),
    0x8D: _partial(_push_text, 8),
    ord("C"): _partial(_push_bytes, 1),
    ord("B"): _partial(_push_bytes, 4),
    0x8E: _partial(_push_bytes, 8),
    0x96: _partial(_push_bytes, 8),
    ord(")"): _partial(_push, ()),
    0x85: _partial(_push_tuple, 1),
    0x86: _partial(_push_tuple, 2),
    0x87: _partial(_push_tuple, 3),
    ord("t"): _partial(_push_all, tuple),
    ord("]"): _partial(_push_new, list),
    0x8F: _partial(_push_new, list),
    0x91: _partial(_push_all, list),
    ord("}"): _partial(_push_new, Pairs),
    ord("a"): _partial(_add_one, 1),
    ord("s"): _partial(_add_one, 2),
    ord("e"): _add_all,
    ord("u"): _add_all,
    0x90: _add_all,
    ord("("): _mark,
    ord("0"): _pop,
    ord("1"): _pop_all,
    ord("2"): _duplicate,
    0x94: _memoize,
    ord("q"): _partial(_put, 1),
    ord("r"): _partial(_put, 4),
    ord("h"): _partial(_get, 1),
    ord("j"): _partial(_get, 4),
    0x93: _name,
    ord("c"): _name_in_lines,
    ord("R"): _call,
    0x81: _call,
    0x92: _call_with_keywords,
    ord("b"): _set_state,
}
"""What each step does, by its byte; all others are refused (the names are those in pickletools)."""
