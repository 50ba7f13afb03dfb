"""What each kind of hint lets pass, and how all else is refused: in one short sentence."""

import asyncio
import concurrent.futures
import enum
import fractions
import inspect
import random
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, SupportsIndex

import numpy as np
import numpy.typing as npt
import pytest

import shardproof
from shardproof import checkpoint, datasets, fetching, receipts
from shardproof._base.arguments import checked, count, number, rank_of
from shardproof.checks import Executor
from shardproof.fetching.cache._settings import cleanup_policy
from shardproof.receipts._canonical import hash_of
from tests.helpers.planning import source


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
    (int, INTS),
    (int | None, INTS | {"None"}),
    (float, FLOATS),
    (bool, {"True"}),
    (bool | int, INTS | {"True"}),
    (object, {*VALUES}),
    (Any, {*VALUES}),
    (Literal["present", "valid"], PRESENT),
    (int | Literal["all", "x"], INTS | {"'x'"}),
    (Sequence, MANY),
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


@pytest.mark.parametrize("hint", [int, int | None, float, bool | int, int | Literal["all"]])
def test_numbers_of_numpy_and_of_enumerations_arrive_as_those_of_python(hint: Any) -> None:
    call = taking(hint)
    for name in INTS:
        assert (type(call(VALUES[name])), call(VALUES[name])) == (int, VALUES[name])
    if hint is float:
        assert type(call(np.float32(1))) is float


def test_what_numpy_takes_for_a_type_is_one() -> None:
    call = taking(npt.DTypeLike)
    assert (call(np.uint32), call("<u4")) == (np.uint32, "<u4")
    with pytest.raises(TypeError):
        call(3)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (
        lambda: shardproof.validate("/x", level=b"valid"),
        "validate(): level: expected 'present', 'complete' or 'valid', found b'valid'",
    ),
    (
        lambda: shardproof.validate("/x", workers="2"),
        "validate(): workers: expected int or None, found '2'",
    ),
    (lambda: shardproof.validate(3), "validate(): path: expected str or PathLike[str], found 3"),
    (
        lambda: shardproof.OrderedDataLoader("/x", layer=6, batch_size=True),
        "OrderedDataLoader(): batch_size: expected int, found True",
    ),
    (
        lambda: asyncio.run(shardproof.MultiShardSaver().save_shard_async("x/y", 0.0, {})),
        "MultiShardSaver.save_shard(): rank: expected int, found 0.0",
    ),
    (
        lambda: receipts.open_run("/x", datasets=3),
        "open_run(): datasets: expected Sequence[object], found 3",
    ),
    (
        lambda: shardproof.fetch("file:///x", "a", name="b", cancellation=1),
        "fetch(): cancellation: expected Cancellation or None, found 1",
    ),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_a_refusal_names_the_function_and_the_argument(call: Callable, text: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == text
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: shardproof.OrderedDataLoader("/x", layer=6, batchsize=1),
            "OrderedDataLoader(): there is no 'batchsize'; did you mean 'batch_size'?",
        ),
        (
            lambda: shardproof.validate("/x", levels="valid", zzz=1),
            "validate(): there is no 'levels'; did you mean 'level'?",
        ),
        (
            lambda: shardproof.Metadata.load("/x", **{"\x1b[2J": 1}),
            "Metadata.load(): there is no '\\x1b[2J'; expected one of shards_dir",
        ),
        (
            lambda: shardproof.ReceiptStore("/x", clock=1),  # its own is for tests
            (
                "ReceiptStore(): there is no 'clock'; "
                "expected one of heartbeat, plan, plan_dir, stale_after"
            ),
        ),
    ],
)
def test_a_keyword_that_there_is_not_is_refused_with_the_nearest_one(
    call: Callable, text: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == text


def test_the_traceback_of_an_error_of_ours_ends_with_the_caller_and_any_other_is_whole() -> None:
    @checked
    def failing(error: Exception) -> None:
        try:
            raise KeyError
        except KeyError as cause:
            raise error from cause

    for error, n_ours in [(shardproof.ShardproofError("no"), 0), (ValueError("no"), 2)]:
        with pytest.raises(type(error)) as caught:
            failing(error)
        assert len(traceback.extract_tb(caught.value.__traceback__)) == 1 + n_ours
        assert isinstance(caught.value.__cause__, KeyError)  # which says more


class Loud:
    def __repr__(self) -> str:
        return "\x1b[31m\n" + "x" * 1000


class Bad:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    "value",
    [Loud(), Bad(), 10**5000, [10**5000], fractions.Fraction(10**5000)],
    ids=["loud", "bad", "int", "list", "fraction"],
)
def test_a_value_is_shown_on_one_line_and_cut_whatever_its_repr_does(value: object) -> None:
    with pytest.raises(TypeError, match=r"path: expected str or PathLike\[str\], found") as caught:
        shardproof.validate(value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("word", ["al", "\x1b[2J", "x" * 10**6])
def test_a_word_that_is_none_of_those_to_choose_from_is_a_value_error(word: str) -> None:
    call = taking(int | Literal["all", "none"])
    with pytest.raises(ValueError, match="x: expected int, 'all' or 'none', found") as told:
        call(word)
    assert str(told.value).isprintable()
    assert len(str(told.value)) < 300


@pytest.mark.parametrize(
    "make",
    [
        lambda: fetching.HubSource("org/x", token=b"hf_secret"),
        lambda: fetching.HttpSource("http://x", headers={"Authorization": b"hf_secret"}),
    ],
)
def test_a_secret_is_not_shown(make: Callable) -> None:
    with pytest.raises(
        TypeError, match=r"(token|headers): expected .* found (bytes|dict)"
    ) as caught:
        make()
    assert "secret" not in str(caught.value)


def test_a_signature_stays_and_a_coroutine_function_refuses_when_it_is_called() -> None:
    @checked
    async def double(x: int) -> int:
        return 2 * x

    assert str(inspect.signature(double)) == "(x: int) -> int"
    assert asyncio.run(double(np.int8(100))) == 200
    with pytest.raises(TypeError, match=r"double\(\): x: expected int, found '2'"):
        double("2")


def test_methods_of_every_kind() -> None:
    class Some:
        @checked
        def method(self, x: int) -> int:
            return x

        @classmethod
        @checked
        def of_class(cls, x: int) -> int:
            return x

        @staticmethod
        @checked
        def of_none(x: int) -> int:
            return x

    for call in (Some().method, Some.of_class, Some.of_none):
        assert type(call(np.int64(3))) is type(call(x=np.uint8(3))) is int
        with pytest.raises(TypeError, match=r"Some\.\w+\(\): x: expected int, found True"):
            call(x=True)


def test_arguments_without_hints_and_any_number_of_them() -> None:
    @checked
    def some(a, b: int = 1, *rest: int, **others: object) -> Any:
        return a, b, rest, others

    assert some(np.int8(1), np.int8(2), 3, "4", z=5) == (1, 2, (3, "4"), {"z": 5})
    with pytest.raises(TypeError, match=r"some\(\) missing"):
        some()


def test_a_hint_of_a_class_that_comes_later() -> None:
    assert later_class(Later()) is not None
    with pytest.raises(TypeError, match="x: expected Later, found 3"):
        later_class(3)


@checked
def later_class(x: "Later") -> object:
    return x


class Later:
    pass


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: count("n", True), TypeError, "n: expected int, found True"),
        (lambda: count("n", np.int64(-1)), ValueError, "n: expected 0 or more, found -1"),
        (lambda: count("n", 6, 1, 5), ValueError, "n: expected 1 to 5, found 6"),
        (lambda: number("s", True), TypeError, "s: expected a number, found True"),
        (lambda: number("s", "1"), TypeError, "s: expected a number, found '1'"),
        (lambda: number("s", float("nan")), ValueError, "s: expected a finite number, 0 or more"),
        (lambda: number("s", 1e-4, 1e-3), ValueError, "s: expected a finite number, 0.001 or"),
        (lambda: number("s", 10**400), ValueError, "s: expected 0 to 1.79769e+308, found "),
        (lambda: rank_of(2, 2), ValueError, "rank: expected 0 to 1, found 2"),
        (lambda: rank_of(0, 0), ValueError, "world_size: expected 1 or more, found 0"),
    ],
)
def test_a_number_out_of_range_is_refused(call: Callable, error: type, text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)


def test_a_number_in_range_is_one_of_python() -> None:
    assert rank_of(np.int64(1), 2) == (1, 2)
    assert type(count("n", np.uint8(5), 1, 5)) is int
    assert {type(number("s", value)) for value in (np.float32(0.5), np.int64(1))} == {float, int}


@pytest.mark.parametrize(
    "make",
    [
        lambda n: fetching.Limits(attempts=n(2), connections=n(2), timeout=n(60), deadline=n(90)),
        lambda n: datasets.TokenFiles(sequence_length=n(4), shards_path="x").paths(n(3)),
        lambda n: shardproof.ShardInfo([shardproof.Shard("acts000000.bin", n(4))]),
        lambda n: receipts.make_plan("corpus", [source("a", n(1))], n_shards=n(1)).plan_hash,
        lambda n: datasets.resolve_resume_plan([("a", n(10)), ("b", n(20))], n(12)),
        lambda n: cleanup_policy(None, n(500)),
        lambda n: hash_of({"n": n(3)}),
    ],
)
@pytest.mark.parametrize("kind", [np.int16, np.int64, np.uint64, np.longlong])
def test_a_record_of_numpys_numbers_is_one_of_pythons(make: Callable[..., Any], kind: Any) -> None:
    assert (make(kind), repr(make(kind))) == (make(int), repr(make(int)))


def test_any_of_the_first_items_may_be_the_wrong_one_and_no_random_generator_is_used() -> None:
    before = random.getstate()
    fetching.HttpSource("http://127.0.0.1/", ["a", "b", "c"]).close()
    with pytest.raises(TypeError, match=r"HttpSource\(\): files: expected Sequence\[str"):
        fetching.HttpSource("http://127.0.0.1/", ["a", "b", 3, "c"])
    assert random.getstate() == before


def test_beartype_is_imported_by_the_first_call_that_is_not_plain() -> None:
    code = (
        "import sys, shardproof\n"
        "from pathlib import Path\n"
        "for path in ('/none', Path('/none')):\n"
        "    try: shardproof.validate(path, level='valid', workers=2)\n"
        "    except shardproof.ManifestError: print('beartype' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]
