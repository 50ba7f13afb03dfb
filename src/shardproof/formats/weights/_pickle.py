"""What a pickle says, without doing it: nothing it names is imported, called or looked up.

A pickle is a program: a row of steps that push values on a stack and put them together (the module
`pickletools`, which takes it apart, describes each). Those that name a class or a function, call
it, or set what is in an object only write down here that they were asked to. A dictionary is its
pairs in a row: nothing is hashed, so that no key can be chosen to make it slow. Nothing is copied
or walked twice either, so that the time goes with the length of the pickle, whatever it says.
"""

import dataclasses
import io
import pickletools
import sys
from collections.abc import Callable
from typing import Any

from shardproof._base.messages import quoted, told
from shardproof.errors import ManifestError

_MAX_STEPS = 8_000_000  # those of 100 000 entries: a step can take a hundred bytes of memory
_MAX_DEPTH = 1000
_MAX_FIELDS = 64
_MAX_NAME = 1000
_LEAST_PROTOCOL = 3
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


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class PickledObject:
    """What a class or a function was to make of ``args``, or itself; and its state."""

    name: str
    args: object = None
    state: object = None

    def fields(self) -> dict[str, object]:
        """Return the fields that were to be set; none where the state is something else."""
        state = self.state
        if not isinstance(state, Pairs) or len(state) > 2 * _MAX_FIELDS:
            return {}
        pairs = zip(state[::2], state[1::2], strict=True)
        return {name: value for name, value in pairs if isinstance(name, str)}


def read_pickle(data: bytes, *, path: str) -> object:
    """Return what a pickle of protocol 3 or above says: plain data, `Pairs` and `PickledObject`."""
    reader, file, at = _Reader(), io.BytesIO(data), 0
    try:
        if data[:1] != b"\x80":
            raise ValueError(f"{quoted(data[:20])} at its beginning")
        for _ in range(_MAX_STEPS):
            at = file.tell()
            name, argument = _OPCODES.get(file.read(1), ("", None))
            if name == "STOP":
                return reader.stack.pop()
            step = _STEPS.get(name)
            if step is None:  # whose argument is not decoded, either
                raise ValueError(f"the step {name}" if name else "no step")
            step(reader, argument(file) if argument else None)
        raise ValueError(f"more than {_MAX_STEPS} steps")
    except (IndexError, ValueError, RecursionError) as error:
        why = "it takes what is not there" if isinstance(error, IndexError) else told(error)
        problem = f"expected a pickle of plain data, found at byte {at}: {why}"
        raise ManifestError(problem, path=path) from None


class _Reader:
    """What a pickle has put on its stack so far."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.marks: list[list[object]] = []
        self.memo: dict[int, object] = {}

    def since_mark(self) -> list[object]:
        """Return what is on the stack above the last mark, and take it away."""
        items, self.stack = self.stack, self.marks.pop()
        return items

    def top(self, n_items: int) -> list[object]:
        """Return the last items, and take them away."""
        if len(self.stack) < n_items:
            raise IndexError
        items = self.stack[len(self.stack) - n_items :]
        del self.stack[len(self.stack) - n_items :]
        return items

    def push(self, value: object) -> None:
        self.stack.append(value)

    def mark(self) -> None:
        if len(self.marks) == _MAX_DEPTH:
            raise ValueError("it is nested too deep")
        self.marks.append(self.stack)
        self.stack = []

    def recall(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError("it refers to what is not there")
        self.stack.append(self.memo[index])

    def add(self, items: list[object]) -> None:
        """Put items into what is on top; what a class of its own would hold is left out."""
        into = self.stack[-1]
        if isinstance(into, list):
            if isinstance(into, Pairs) and len(items) % 2:
                raise ValueError("a key without a value")
            into += items
        elif not isinstance(into, PickledObject):
            raise ValueError(f"items for a {type(into).__name__}")

    def name(self, module: object, name: object) -> None:
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a name that is no text")
        if len(module) + len(name) > _MAX_NAME:
            raise ValueError("a name of no class")
        if _acts(module, name):
            raise ValueError(f"the name {quoted(f'{module}.{name}')}")
        self.stack.append(PickledObject(f"{module}.{name}"))

    def call(self, named: object, *args: object) -> None:
        """Write down a call: of a function, or of a class for a new object."""
        if not isinstance(named, PickledObject) or not isinstance(args[0], tuple):
            raise ValueError(f"a call of a {type(named).__name__}")
        self.stack.append(PickledObject(named.name, args[0] if len(args) == 1 else args))

    def build(self, state: object) -> None:
        made = self.stack[-1]
        if not isinstance(made, PickledObject):
            raise ValueError(f"a state for a {type(made).__name__}")
        made.state = state


def _acts(module: str, name: str) -> bool:
    """Whether a name of Python's own library, or one that leads there, is not that of data."""
    package, is_inner = module.partition(".")[0], "." in name
    if is_inner and name.partition(".")[0] in sys.stdlib_module_names:
        return True
    if package == "builtins":
        return name not in _DATA_NAMES
    is_data = (package in _DATA_MODULES and not is_inner) or f"{module}.{name}" in _DATA_FUNCTIONS
    return package in sys.stdlib_module_names and not is_data


def _protocol(_: _Reader, number: Any) -> None:
    if number < _LEAST_PROTOCOL:
        raise ValueError(f"protocol {number}, in which names mean others")


def _memoize(reader: _Reader, index: Any) -> None:
    reader.memo[len(reader.memo) if index is None else index] = reader.stack[-1]


def _two_lines(file: io.BytesIO) -> tuple[str, str]:
    """Return a module and a name as they are: pickletools would take a backslash for more."""
    module, name = file.readline(), file.readline()
    if not name.endswith(b"\n"):
        raise ValueError("no newline found behind a name")
    return module[:-1].decode(), name[:-1].decode()


_OPCODES: dict[bytes, tuple[str, Callable[[io.BytesIO], Any] | None]] = {
    opcode.code.encode("latin-1"): (opcode.name, opcode.arg.reader if opcode.arg else None)
    for opcode in pickletools.opcodes
} | {b"c": ("GLOBAL", _two_lines)}
_Step = Callable[[_Reader, Any], object]
_TAKEN = (
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE"),
    *("BINUNICODE8", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
_STEPS: dict[str, _Step] = {
    "PROTO": _protocol,
    "FRAME": lambda *_: None,
    **dict.fromkeys(_TAKEN, _Reader.push),
    "NONE": lambda reader, _: reader.push(None),
    "NEWTRUE": lambda reader, _: reader.push(True),
    "NEWFALSE": lambda reader, _: reader.push(False),
    "EMPTY_TUPLE": lambda reader, _: reader.push(()),
    "EMPTY_LIST": lambda reader, _: reader.push([]),
    "EMPTY_SET": lambda reader, _: reader.push([]),
    "EMPTY_DICT": lambda reader, _: reader.push(Pairs()),
    "TUPLE1": lambda reader, _: reader.push(tuple(reader.top(1))),
    "TUPLE2": lambda reader, _: reader.push(tuple(reader.top(2))),
    "TUPLE3": lambda reader, _: reader.push(tuple(reader.top(3))),
    "TUPLE": lambda reader, _: reader.push(tuple(reader.since_mark())),
    "FROZENSET": lambda reader, _: reader.push(reader.since_mark()),
    "MARK": lambda reader, _: reader.mark(),
    "POP": lambda reader, _: reader.top(1),
    "POP_MARK": lambda reader, _: reader.since_mark(),
    "DUP": lambda reader, _: reader.push(reader.stack[-1]),
    **dict.fromkeys(("APPENDS", "SETITEMS", "ADDITEMS"), lambda r, _: r.add(r.since_mark())),
    "APPEND": lambda reader, _: reader.add(reader.top(1)),
    "SETITEM": lambda reader, _: reader.add(reader.top(2)),
    **dict.fromkeys(("MEMOIZE", "BINPUT", "LONG_BINPUT"), _memoize),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), _Reader.recall),
    "STACK_GLOBAL": lambda reader, _: reader.name(*reader.top(2)),
    "GLOBAL": lambda reader, arg: reader.name(*arg),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda r, _: r.call(*r.top(2))),
    "NEWOBJ_EX": lambda reader, _: reader.call(*reader.top(3)),
    "BUILD": lambda reader, _: reader.build(*reader.top(1)),
}
"""What each step does, by its name in `pickletools`; all others are refused."""
