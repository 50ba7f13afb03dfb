"""Wrong arguments are one short sentence; numbers are numbers, whoever's they are."""

import asyncio
import enum
import fractions
import inspect
import random
import subprocess
import sys
import traceback
import typing
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

import shardproof
from shardproof import checkpoint, datasets, fetching, receipts
from shardproof._base.arguments import checked, count, number, rank_of
from shardproof.fetching.cache._settings import cleanup_policy
from shardproof.receipts.plan._canonical import hash_of
from tests.helpers.planning import source


class TestMessages:
    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (
                lambda: shardproof.validate("/x", level=b"valid"),
                "validate(): level: expected 'present', 'complete' or 'valid', found b'valid'",
            ),
            (
                lambda: shardproof.validate("/x", workers="2"),
                "validate(): workers: expected int or None, found '2'",
            ),
            (
                lambda: shardproof.validate(3),
                "validate(): path: expected str or PathLike[str], found 3",
            ),
            (
                lambda: shardproof.OrderedDataLoader("/x", layer=6, batch_size=True),
                "OrderedDataLoader(): batch_size: expected int, found True",
            ),
            (
                lambda: shardproof.MultiShardSaver().save_shard("x/y", "0", {}),
                "MultiShardSaver.save_shard(): rank: expected int, found '0'",
            ),
            (
                lambda: asyncio.run(shardproof.MultiShardSaver().save_shard_async("x/y", 0.0, {})),
                "MultiShardSaver.save_shard_async(): rank: expected int, found 0.0",
            ),
            (
                lambda: shardproof.ShardInfo.load(None),
                "ShardInfo.load(): shards_dir: expected str or PathLike[str], found None",
            ),
            (
                lambda: shardproof.SharedShardedDataset.locate_shards("0"),
                "SharedShardedDataset.locate_shards(): shard_index: expected int, found '0'",
            ),
            (
                lambda: receipts.open_run("/x", datasets=3),
                "open_run(): datasets: expected Sequence[object], found 3",
            ),
            (
                lambda: checkpoint.prune("/x", keep="3"),
                "prune(): keep: expected int, found '3'",
            ),
            (
                lambda: shardproof.fetch("file:///x", "a", name="b", cancellation=1),
                "fetch(): cancellation: expected Cancellation or None, found 1",
            ),
        ],
    )
    def test_they_name_the_function_and_the_argument(self, call: Callable, text: str) -> None:
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value) == text
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    def test_of_a_subclass_they_name_that_class(self, make_shards_dir) -> None:
        class Mine(shardproof.OrderedDataLoader):
            pass

        loader = Mine(make_shards_dir(2), layer=6)
        with pytest.raises(TypeError, match=r"^Mine\.set_epoch\(\): epoch"):
            loader.set_epoch("1")

    def test_a_value_is_quoted_and_cut(self) -> None:
        with pytest.raises(TypeError) as caught:
            shardproof.validate("/x", workers="\x1b[31m\n\u202eé" + "x" * 10**6)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 250

    def test_so_is_what_a_repr_says(self) -> None:
        class Loud:
            def __repr__(self) -> str:
                return "\x1b[31m\n" + "x" * 1000

        with pytest.raises(TypeError) as caught:
            shardproof.validate(Loud())
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 250

    def test_a_repr_that_fails(self) -> None:
        class Bad:
            def __repr__(self) -> str:
                raise RuntimeError

        with pytest.raises(TypeError, match="found <Bad instance at"):
            shardproof.validate(Bad())

    @pytest.mark.parametrize(
        "value",
        [10**5000, [10**5000], fractions.Fraction(10**5000)],
        ids=["int", "list", "fraction"],
    )
    def test_very_many_digits(self, value: object) -> None:
        with pytest.raises(TypeError, match=r"path: expected str or PathLike\[str\], found"):
            shardproof.validate(value)

    def test_a_token_is_not_shown(self) -> None:
        with pytest.raises(TypeError) as caught:
            fetching.HubSource("org/x", token=b"hf_secret")
        assert "secret" not in str(caught.value)

    def test_a_header_is_not_shown(self) -> None:
        with pytest.raises(TypeError, match=r"headers: expected .* found dict") as caught:
            fetching.HttpSource("http://x", headers={"Authorization": b"hf_secret"})
        assert "secret" not in str(caught.value)

    def test_a_wrong_name_is_the_interpreters_error(self) -> None:
        with pytest.raises(TypeError, match=r"validate\(\) .*levle"):
            shardproof.validate("/x", levle="valid")
        with pytest.raises(TypeError, match="positional"):
            shardproof.validate("/x", "valid", 3, 4, 5)

    def test_a_traceback_is_short(self) -> None:
        with pytest.raises(ValueError, match="vaild") as caught:
            shardproof.validate("/x", level="vaild")
        assert len(traceback.extract_tb(caught.value.__traceback__)) <= 6


class TestTheDecorator:
    def test_a_signature_stays(self) -> None:
        said = inspect.signature(shardproof.validate)
        assert [*said.parameters][:2] == ["path", "level"]
        assert [*said.parameters][-3:] == ["workers", "executor", "progress"]
        assert said.return_annotation is shardproof.Report
        assert shardproof.validate.__doc__.startswith("Look at every file")
        assert typing.get_type_hints(shardproof.validate)["workers"] == int | None

    def test_a_coroutine_function_stays_one(self) -> None:
        @checked
        async def double(x: int) -> int:
            return 2 * x

        assert inspect.iscoroutinefunction(double)
        assert asyncio.run(double(np.int8(100))) == 200
        with pytest.raises(TypeError, match=r"double\(\): x: expected int, found '2'"):
            asyncio.run(double("2"))

    def test_methods_of_every_kind(self) -> None:
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

    def test_arguments_without_hints_and_any_number_of_them(self) -> None:
        @checked
        def some(a, b: int = 1, *rest: int, **others: object) -> Any:
            return a, b, rest, others

        assert some(np.int8(1), np.int8(2), 3, "4", z=5) == (1, 2, (3, "4"), {"z": 5})

    def test_numbers(self) -> None:
        @checked
        def some(n: int | None = None, x: float = 0.0, b: bool | int = 0) -> list[object]:
            return [type(value) for value in (n, x, b)]

        kinds = enum.IntEnum("kinds", ["ONE"])
        assert some(np.uint64(2**64 - 1), np.int16(30), np.int64(1)) == [int, int, int]
        assert some(kinds.ONE, np.float32(0.5), True) == [int, float, bool]
        assert some(10**400, 10**400) == [int, int, int]
        for n in (True, np.bool_(True), "1", b"1", 1.0, np.float64(1), np.array([1]), 1j, [1]):
            with pytest.raises(TypeError, match=r"some\(\): n: expected int or None, found"):
                some(n)
        for x in (
            True,
            np.bool_(True),
            "1",
            1j,
            np.complex64(1),
            None,
            fractions.Fraction(10**400),
        ):
            with pytest.raises(TypeError, match=r"some\(\): x: expected float, found"):
                some(x=x)

    def test_a_choice_beside_a_number(self) -> None:
        @checked
        def some(layer: int | Literal["all"]) -> object:
            return layer

        assert some("all") == "all"
        assert type(some(np.int64(6))) is int
        with pytest.raises(TypeError, match="layer: expected int or 'all', found None"):
            some(None)

    @pytest.mark.parametrize("word", ["al", "\x1b[2J", "x" * 10**6])
    def test_a_word_that_is_none_of_those_to_choose_from(self, word: str) -> None:
        @checked
        def some(layer: int | Literal["all", "none"]) -> object:
            return layer

        with pytest.raises(ValueError, match="layer: expected int, 'all' or 'none', found") as told:
            some(word)
        assert str(told.value).isprintable()
        assert len(str(told.value)) < 300

    def test_a_hint_of_a_class_that_comes_later(self) -> None:
        assert later_class(Later()) is not None
        with pytest.raises(TypeError, match="x: expected Later, found 3"):
            later_class(3)


class TestNumbers:
    @pytest.mark.parametrize("value", [1, 5, np.int64(3), np.uint8(5)])
    def test_a_count_is_one_of_python(self, value: object) -> None:
        assert type(count("n", value, 1, 5)) is int

    @pytest.mark.parametrize("value", [True, 1.0, "1", None, np.float64(1), np.bool_(True)])
    def test_what_is_no_integer(self, value: object) -> None:
        with pytest.raises(TypeError, match=r"^n: expected int, found "):
            count("n", value)

    @pytest.mark.parametrize(
        ("limits", "expected"), [((1,), "1 or more"), ((1, 5), "1 to 5"), ((), "0 or more")]
    )
    def test_a_count_out_of_range(self, limits: tuple, expected: str) -> None:
        with pytest.raises(ValueError, match=f"^n: expected {expected}, found -1$"):
            count("n", np.int64(-1), *limits)

    def test_a_count_over_its_limit(self) -> None:
        with pytest.raises(ValueError, match=r"^n: expected 1 to 5, found 6$"):
            count("n", 6, 1, 5)

    @pytest.mark.parametrize("value", [1, 0.5, np.float32(0.5), np.int64(1)])
    def test_a_number_is_one_of_python(self, value: object) -> None:
        assert type(number("s", value)) in {int, float}

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 1e-4])
    def test_a_number_out_of_range(self, value: float) -> None:
        with pytest.raises(ValueError, match=r"^s: expected a finite number, 0\.001 or more"):
            number("s", value, 1e-3)

    def test_a_number_that_no_float_holds(self) -> None:
        with pytest.raises(ValueError, match=r"^s: expected 0 to 1\.79769e\+308, found "):
            number("s", 10**400)

    @pytest.mark.parametrize("value", [True, "1", None])
    def test_what_is_no_number(self, value: object) -> None:
        with pytest.raises(TypeError, match=r"^s: expected a number, found "):
            number("s", value)

    def test_ranks(self) -> None:
        assert rank_of(np.int64(1), 2) == (1, 2)
        with pytest.raises(ValueError, match=r"^rank: expected 0 to 1, found 2$"):
            rank_of(2, 2)
        with pytest.raises(ValueError, match=r"^world_size: expected 1 or more, found 0$"):
            rank_of(0, 0)


@checked
def later_class(x: "Later") -> object:
    return x


class Later:
    pass


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


def test_the_global_random_generator_stays_where_it_is(make_shards_dir) -> None:
    before = random.getstate()
    shardproof.ShuffledDataLoader(make_shards_dir(2), layer=6, seed=1)
    fetching.HttpSource("http://127.0.0.1/", ["a", "b", "c"]).close()
    assert random.getstate() == before


def test_any_of_the_first_items_may_be_the_wrong_one() -> None:
    with pytest.raises(TypeError, match=r"HttpSource\(\): files: expected Sequence\[str"):
        fetching.HttpSource("http://127.0.0.1/", ["a", "b", 3, "c"])


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
