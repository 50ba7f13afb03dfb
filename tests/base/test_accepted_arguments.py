"""What each kind of hint lets pass, and that it refuses all else."""

import concurrent.futures
import enum
import fractions
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt
import pytest

from shardproof import checkpoint, fetching
from shardproof._base.arguments import checked
from shardproof._base.fanout import Executor


class Word(enum.StrEnum):
    PRESENT = "present"


class Kind(enum.IntEnum):
    ONE = 1


VALUES: dict[str, Any] = {
    **{repr(value): value for value in (None, True, 1, 1.5, 1j, "", "present", "x", b"x")},
    **{repr(value): value for value in ([], ["a"], ["a", 1], [1], [None], (), ("a",), (1,))},
    **{repr(value): value for value in ([("a", 1)], [("a", "b")], [{}], {}, {"a": 1}, {1: "b"})},
    **{repr(value): value for value in ({"a": "b"}, range(3), {"a"}, bytearray(), int, len)},
    **{kind.__name__: kind("1") for kind in (np.int8, np.uint64, np.float32, np.float64)},
    "bool_": np.bool_(True),
    "complex64": np.complex64(1),
    "10**400": 10**400,
    "fraction": fractions.Fraction(1, 2),
    "IntEnum": Kind.ONE,
    "StrEnum": Word.PRESENT,
    "str_": np.str_("present"),
    "array": np.zeros(2),
    "array of a number": np.array(1),
    "[array]": [np.zeros(1)],
    "{array}": {"a": np.zeros(1)},
    "[{array}]": [{"a": np.zeros(1)}],
    "memoryview": memoryview(b"x"),
    "Path": Path("x"),
    "object": object(),
    "Limits": fetching.Limits(),
    "[RemoteFile]": [fetching.RemoteFile("a")],
    "source": fetching.HttpSource("http://x", ["a"]),
    "storage": checkpoint.LocalStorage(),
    "executor": concurrent.futures.ThreadPoolExecutor(1),
}

INTS = {"1", "10**400", "IntEnum", "int8", "uint64"}
FLOATS = INTS | {"1.5", "float32", "float64"}
PRESENT = {"'present'", "StrEnum", "str_"}
TEXTS = {"''", "'x'"} | PRESENT
EMPTY = {"''", "[]", "()", "bytearray(b'')"}
MANY_TEXTS = TEXTS | EMPTY | {"['a']", "('a',)"}  # a text is a sequence of texts
MANY = MANY_TEXTS | {"b'x'", "['a', 1]", "[1]", "[None]", "(1,)", "[('a', 1)]", "[('a', 'b')]"}
MANY |= {"[{}]", "[array]", "[{array}]", "[RemoteFile]", "range(0, 3)", "memoryview"}
CALLS = {"<class 'int'>", "<built-in function len>"}

ACCEPTED: list[tuple[Any, set[str]]] = [
    (str, TEXTS),
    (str | PathLike[str], TEXTS | {"Path"}),
    (str | PathLike[str] | None, TEXTS | {"Path", "None"}),
    (int, INTS),
    (int | None, INTS | {"None"}),
    (float, FLOATS),
    (float | None, FLOATS | {"None"}),
    (bool, {"True"}),
    (bool | int, INTS | {"True"}),
    (object, {*VALUES}),
    (Any, {*VALUES}),
    (Literal["present", "valid"], PRESENT),
    (Literal["present", "valid"] | None, PRESENT | {"None"}),
    (int | Literal["all", "x"], INTS | {"'x'"}),
    (Sequence, MANY),
    (Sequence[object], MANY),
    (Sequence[str], MANY_TEXTS),
    (Sequence[str | fetching.RemoteFile], MANY_TEXTS | {"[RemoteFile]"}),
    (Sequence[Mapping[str, np.ndarray]], EMPTY | {"[{}]", "[{array}]"}),
    (Sequence[tuple[str, SupportsIndex]], EMPTY | {"[('a', 1)]"}),
    (tuple[int, ...], {"()", "(1,)"}),
    (Mapping[str, str], {"{}", "{'a': 'b'}"}),
    (Mapping[str, object], {"{}", "{'a': 1}", "{'a': 'b'}", "{array}"}),
    (Mapping[str, np.ndarray[Any, np.dtype[Any]]], {"{}", "{array}"}),
    (Callable[[int, int], None], CALLS),
    (bool | Callable[[int, int], None], CALLS | {"True"}),
    (bytes | bytearray | memoryview, {"b'x'", "bytearray(b'')", "memoryview"}),
    (fetching.Limits, {"Limits"}),
    (fetching.Source | str, TEXTS | {"source"}),
    (checkpoint.CheckpointStorage, {"storage"}),
    (Executor, {"executor"}),
]


def taking(hint: Any) -> Callable[[Any], Any]:
    def some(x: Any) -> Any:
        return x

    some.__annotations__["x"] = hint
    return checked(some)


@pytest.mark.parametrize(
    ("hint", "accepted"), ACCEPTED, ids=lambda value: "" if isinstance(value, set) else str(value)
)
def test_a_hint_lets_these_pass_and_no_other(hint: Any, accepted: set[str]) -> None:
    call, passed = taking(hint), set()
    for name, value in VALUES.items():
        try:
            call(value)
        except (TypeError, ValueError):
            continue
        passed.add(name)
    assert passed == accepted


def test_what_numpy_takes_for_a_type_is_one() -> None:
    call = taking(npt.DTypeLike)
    assert call(np.uint32) is np.uint32
    assert call("<u4") == "<u4"
    with pytest.raises(TypeError):
        call(3)


@pytest.mark.parametrize("hint", [int, int | None, float, bool | int, int | Literal["all"]])
def test_numbers_of_numpy_and_of_enumerations_arrive_as_those_of_python(hint: Any) -> None:
    call = taking(hint)
    for name in INTS:
        assert type(call(VALUES[name])) is int
        assert call(VALUES[name]) == VALUES[name]
    if hint is float:
        assert type(call(np.float32(1))) is float
