"""Wrong arguments are one short sentence; numbers are numbers, whoever's they are."""

import asyncio
import contextlib
import enum
import fractions
import importlib
import inspect
import itertools
import json
import os
import pkgutil
import random
import traceback
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shardproof
from shardproof import checkpoint, datasets, fetching, receipts
from shardproof._base import arguments
from shardproof._base.arguments import checked, count, number, rank_of
from shardproof.fetching.cache._settings import cleanup_policy
from shardproof.receipts.plan._canonical import hash_of
from tests.helpers.planning import complete, source
from tests.helpers.token_files import write_shard

Number = Callable[[int], Any]


def private_modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(shardproof.__path__, "shardproof."):
        if not {"testing", "__main__", "_torch"} & {*found.name.split(".")}:
            yield importlib.import_module(found.name)


def checked_functions() -> dict[str, Callable[..., Any]]:
    """All that the decorator was put on, by the name that users know."""
    found = {}
    for module in private_modules():
        classes = [value for value in vars(module).values() if inspect.isclass(value)]
        for owner in (module, *classes):
            for value in vars(owner).values():
                function = getattr(value, "__func__", value)
                if getattr(function, "__code__", None) in CODES:
                    name = f"{function.__module__}.{function.__qualname__}"
                    found[name] = function.__wrapped__
    return found


@checked
def plain() -> None: ...


@checked
async def later() -> None: ...


CODES = {plain.__code__, later.__code__}
FUNCTIONS = checked_functions()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_hint_of_ours_is_understood_and_has_words(name: str) -> None:
    for argument in arguments._signature_of(FUNCTIONS[name])[1].values():
        words = arguments._expected(argument.hint)
        assert words
        assert "typing" not in words


class Word(enum.StrEnum):
    PRESENT = "present"


def hints_of_ours() -> set[Any]:
    """What one may choose from in all arguments, and in all fields that are checked."""
    kinds = (shardproof.Metadata, datasets.HubSpec, datasets.TextSpec, datasets.TokenFiles)
    found = [*map(arguments._fields_of, kinds)]
    found += (arguments._signature_of(function)[1] for function in FUNCTIONS.values())
    hints = (argument.hint for each in found for argument in each.values())
    return {choice for hint in hints for choice in arguments._choices(hint)}


DECIDED = sorted((h for h in hints_of_ours() if arguments._class_of(h) is not None), key=str)
VALUES = [
    *(
        None,
        True,
        1,
        1.5,
        1j,
        "",
        "present",
        "x",
        Word.PRESENT,
        np.str_("present"),
        b"x",
        Path("x"),
    ),
    *([], ["a"], [1], [None], ("a",), (1,), {}, {"a": 1}, range(3), bytearray(), memoryview(b"x")),
    *(np.float64(1), np.int64(1), np.zeros(2), len, int, object(), typing.Any),
]


@pytest.mark.parametrize("hint", DECIDED, ids=str)
def test_what_is_decided_without_beartype_is_as_beartype_says(hint: Any) -> None:
    for value in VALUES:
        assert arguments._fits_choice(value, hint) == as_beartype_says(value, hint), repr(value)


def as_beartype_says(value: Any, hint: Any) -> bool:
    """Of a sequence all items count; beartype would look at one."""
    origin, items = typing.get_origin(hint), typing.get_args(hint)
    if origin is Sequence or items[1:] == (...,):
        inside = [*arguments._choices(items[0])]
        fits = arguments._fits_for_beartype(value, origin)
        return fits and all(any(as_beartype_says(v, i) for i in inside) for v in value)
    return arguments._fits_for_beartype(value, hint)


def test_few_hints_are_beartypes() -> None:
    """Mappings, protocols, and what numpy takes for a type, which is a union in some versions."""
    of_numpy = arguments._choices(npt.DTypeLike)
    left = hints_of_ours().difference(DECIDED, of_numpy)
    assert {
        str(typing.get_origin(hint) or hint).rpartition(".")[2].strip("'>") for hint in left
    } == {
        *("CheckpointStorage", "Mapping", "Source"),
    }
    assert len(DECIDED) > 30


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
                "receipts.open_run(): datasets: expected Sequence[object], found 3",
            ),
            (
                lambda: checkpoint.prune("/x", keep="3"),
                "checkpoint.prune(): keep: expected int, found '3'",
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
        assert str(caught.value) == f"shardproof.{text}"
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    def test_of_a_subclass_they_name_the_class_of_ours(self, make_shards_dir) -> None:
        class Mine(shardproof.OrderedDataLoader):
            pass

        loader = Mine(make_shards_dir(2), layer=6)
        with pytest.raises(
            TypeError, match=r"^shardproof\.OrderedDataLoader\.set_epoch\(\): epoch"
        ):
            loader.set_epoch("1")

    def test_a_value_is_quoted_and_cut(self) -> None:
        with pytest.raises(TypeError) as caught:
            shardproof.validate("/x", workers="\x1b[31m\n\u202eé" + "x" * 10**6)
        assert str(caught.value).isascii()
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

    @pytest.mark.parametrize(
        ("word", "hint"), [("al", "; did you mean 'all'?"), ("\x1b[2J", ""), ("x" * 10**6, "")]
    )
    def test_a_word_that_is_none_of_those_to_choose_from(self, word: str, hint: str) -> None:
        @checked
        def some(layer: int | Literal["all", "none"]) -> object:
            return layer

        with pytest.raises(ValueError, match="layer: expected int, 'all' or 'none', found") as told:
            some(word)
        assert str(told.value).endswith(hint)
        assert str(told.value).isprintable()
        assert len(str(told.value)) < 300

    def test_a_hint_of_a_class_that_comes_later(self) -> None:
        assert later_class(Later()) is not None
        with pytest.raises(TypeError, match="x: expected Later, found 3"):
            later_class(3)

    def test_it_costs_no_random_numbers_where_nothing_is_in_a_list(self) -> None:
        state = random.getstate()
        checkpoint.MultiShardSaver()
        assert random.getstate() == state


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


# What becomes of a call with numbers, in an empty directory: `n` makes each of them.


def saved(n: Number, path: Path) -> Any:
    saver, prefix = shardproof.MultiShardSaver(), path / "model"
    saver.save_shard(prefix, n(0), {"x": np.arange(3)}, step=n(7))
    saver.save_metadata(prefix, world_size=n(1), step=n(7), timestamp="2026-11-21T20:00:00Z")
    loader = shardproof.MultiShardLoader(workers=n(2))
    assert loader.load_shard(prefix, n(0))["x"].tolist() == [0, 1, 2]
    assert checkpoint.prune(path, keep=n(1)) == []
    checkpoint.to_safetensors(prefix, path / "there")
    checkpoint.from_safetensors(path / "there", path / "again", step=n(7))
    again = loader.load_metadata(path / "again")
    assert (again.step, type(again.step)) == (7, int)
    return (path / "model.metadata.json").read_bytes()


def saved_later(n: Number, path: Path) -> Any:
    async def work() -> None:
        saver, prefix = shardproof.MultiShardSaver(), path / "model"
        await saver.save_shard_async(prefix, n(0), {"x": np.arange(3)}, step=n(7))
        await saver.save_metadata_async(
            prefix, world_size=n(1), step=n(7), timestamp="2026-11-21T20:00:00Z"
        )
        await shardproof.MultiShardLoader().load_shard_async(prefix, n(0))

    asyncio.run(work())
    return (path / "model.metadata.json").read_bytes()


def looked_at(n: Number, path: Path) -> Any:
    shards_dir = shardproof.testing.write_layout(shardproof.testing.Layout(), path)
    report = shardproof.validate(shards_dir, workers=n(2))
    (path / "disk").mkdir()
    staged = shardproof.stage(shards_dir, path / "disk", workers=n(2))
    return report.ok, sorted(os.listdir(staged))


def loaded(n: Number, path: Path) -> Any:
    shards_dir = shardproof.testing.write_layout(shardproof.testing.Layout(), path)
    keywords = {"layer": n(6), "batch_size": n(4), "rank": n(1), "world_size": n(2)}
    ordered = shardproof.OrderedDataLoader(shards_dir, **keywords, workers=n(2))
    shuffled = shardproof.ShuffledDataLoader(
        shards_dir, **keywords, seed=n(3), buffer_size=n(16), workers=n(1), ignore_labels=[]
    )
    for loader in (ordered, shuffled):
        loader.set_epoch(n(2))
        with contextlib.suppress(ModuleNotFoundError):  # where torch is not installed
            loader.torch_dataset(num_workers=n(2))
    batches = [[b["example_idx"].tolist() for b in loader] for loader in (ordered, shuffled)]
    dataset = shardproof.IndexedDataset(shards_dir, layer=n(6))
    row = dataset[n(1)]["example_idx"].tolist()
    return batches, row, json.dumps([ordered.state_dict(), shuffled.state_dict()])


def received(n: Number, path: Path) -> Any:
    files = [source("a.txt", n(1)), source("b.txt", n(2))]
    plan = receipts.make_plan("corpus", files, n_shards=n(3))
    run = receipts.open_run(path, datasets=["corpus"], sample={"seed": n(7), "parts": [n(1)]})
    store = run.store(plan, heartbeat=n(30), stale_after=n(300))
    complete(store, n(0))
    store = shardproof.ReceiptStore(store.path, heartbeat=n(30), stale_after=n(300))
    done = [store.verdict(n(0)).completed, store.is_completed(n(1)), store.receipt(n(0)).status]
    found = [verdict.index for verdict in store.verdicts(pending=True, workers=n(2))]
    assert found == store.pending(workers=n(2)) == [1, 2]
    with store.claim(n(1)) as work:
        work.output("shard_000001.bin").write_bytes(b"x")
        work.stats["n"] = n(5)
    return plan.plan_hash, run.run_hash, done, store.receipt(1).stats


def pinned(n: Number, path: Path) -> Any:
    return receipts.pin_hub("org/x", "a" * 40, timeout=n(3))


def fetched(n: Number, path: Path) -> Any:
    for name in ("a", "b", "c"):
        (path / name).write_bytes(name.encode())
    limits = fetching.Limits(
        attempts=n(2),
        connections=n(2),
        timeout=n(60),
        stall_timeout=n(30),
        deadline=n(90),
    )
    names = ["a", "b", "c"]
    with shardproof.ShardPrefetcher(
        f"file://{path}",
        names,
        path / "cache",
        lookahead=n(1),
        max_cache_bytes=n(1000),
        limits=limits,
    ) as prefetcher:
        return [found.read_bytes() for found in prefetcher], limits == fetching.Limits(
            attempts=2,
            connections=2,
            timeout=60,
            stall_timeout=30,
            deadline=90,
        )


def rows_read(n: Number, path: Path) -> Any:
    (path / "data").mkdir()
    pq.write_table(pa.table({"id": list(range(9))}), path / "data" / "train-0.parquet")
    (path / "lines.txt").write_text("a\nb\nc\n")
    rows = shardproof.hf_load_dataset_sharded(
        "org/x",
        cache_dir=path / "cache",
        source=f"file://{path}",
        prefetch=n(2),
        skip=n(2),
        max_cache_bytes=n(30000),
    )
    spec = f"txt:{path / 'lines.txt'}"
    lines = datasets.load_dataset_from_spec(spec, skip=n(1)).skip(n(1))
    plan = datasets.resolve_resume_plan([("a", n(10)), ("b", n(20))], n(12))
    found = itertools.chain(rows.batches(n(3)), lines.batches(n(1)))
    batches = [batch.to_pydict() for batch in found]
    assert json.dumps(rows.state_dict())
    return batches, json.dumps(plan)


def of_tokens(n: Number, path: Path) -> Any:
    write_shard(path / "there", 0, np.arange(12, dtype=np.uint32))
    write_shard(path / "there", 1, np.arange(12, dtype=np.uint32))

    async def work() -> Any:
        async with shardproof.ShardedDatasetManager(
            n(4),
            n(0),
            n(1),
            f"file://{path}/there",
            max_download_retries=n(2),
            download_timeout=n(60),
            max_dataset_idx=n(2),
            wait_timeout=n(60),
            shards_path=path / "here",
        ) as manager:
            assert await manager.prepare_shard(n(0))
            await manager.create_dataset(n(0))
            await manager.initialize_datasets(n(1))
            return [row.tolist() for row in manager.active_dataset], manager.shard_index

    def local() -> Any:
        with shardproof.SharedShardedDataset(
            n(1), n(4), n(0), n(1), shards_path=path / "there"
        ) as dataset:
            files = dataset.locate_shards(n(1), path / "there")
            return [dataset[n(1)].tolist(), dataset.sample_id(n(0)), [f.name for f in files]]

    return asyncio.run(work()), local()


def of_a_saev_directory(n: Number, path: Path) -> Any:
    info = shardproof.ShardInfo([shardproof.Shard("acts000000.bin", n(4))])
    info.dump(path)
    return (path / "shards.json").read_bytes(), hash(shardproof.ShardInfo.load(path)) == hash(info)


def cleaned(n: Number, path: Path) -> Any:
    return cleanup_policy(None, n(500)), hash_of({"n": n(3)})


CALLS = (
    saved,
    saved_later,
    looked_at,
    loaded,
    received,
    pinned,
    fetched,
    rows_read,
    of_tokens,
    of_a_saev_directory,
    cleaned,
)


@pytest.mark.parametrize("kind", [np.int64, np.int16, np.uint64, np.longlong])
@pytest.mark.parametrize("call", CALLS)
def test_a_number_of_numpy_is_a_number(call: Callable[..., Any], kind: Number, tmp_path) -> None:
    places = [tmp_path / "python", tmp_path / "numpy"]
    for place in places:
        place.mkdir()
    assert call(int, places[0]) == call(kind, places[1])


def test_all_functions_with_numbers_were_called_so(tmp_path, monkeypatch) -> None:
    """So that no new one is forgotten above."""
    given: set[tuple[str, str]] = set()

    class Told(arguments._Argument):
        def accept(self, value: Any, name_of_owner: Callable[[], str], name: str) -> Any:
            if isinstance(value, np.int64):
                given.add((name_of_owner(), name))
            return super().accept(value, name_of_owner, name)

    wanted = set()
    for function in FUNCTIONS.values():
        _, hints = arguments._signature_of(function)
        for name, argument in hints.items():
            if argument.numbers & {int, float}:
                wanted.add((arguments._name_of_function(function, ()), name))
            monkeypatch.setitem(hints, name, Told(*argument))
    for n, call in enumerate(CALLS):
        place = tmp_path / str(n)
        place.mkdir()
        call(np.int64, place)
    assert {name for _, name in wanted} <= {name for _, name in given}
    assert len(wanted) > 40


def test_the_global_random_generator_stays_where_it_is(make_shards_dir) -> None:
    before = random.getstate()
    shardproof.ShuffledDataLoader(make_shards_dir(2), layer=6, seed=1)
    fetching.HttpSource("http://127.0.0.1/", ["a", "b", "c"]).close()
    assert random.getstate() == before


def test_any_of_the_first_items_may_be_the_wrong_one() -> None:
    with pytest.raises(TypeError, match=r"HttpSource\(\): files: expected Sequence\[str"):
        fetching.HttpSource("http://127.0.0.1/", ["a", "b", 3, "c"])
