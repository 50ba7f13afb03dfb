"""Plan directories of data-prep runs: what is written, what the oracle says, what is drawn."""

import hashlib
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st

from shardproof import ReceiptStore, receipts
from shardproof.testing import (
    MakeReceiptsDir,
    ReceiptsLayout,
    ReceiptState,
    expected_pending,
    output_bytes,
    receipt_bytes,
    receipts_dir,
    receipts_dir_maker,
    receipts_layout,
    without_root_override,
    write_receipts,
)
from shardproof.testing.contracts.strategies import (
    hostile_receipts,
    receipt_states,
    receipts_layouts,
)

LEVELS = ("present", "complete", "valid")
ALL = receipts_layout(len(ReceiptState), **{s.value: [i] for i, s in enumerate(ReceiptState) if i})

# By hand, to hold the oracle against: whether a shard is done at each level.
YES, NO = (True, True, True), (False, False, False)
DONE = dict.fromkeys(ReceiptState, NO) | {
    ReceiptState.COMPLETED: YES,
    ReceiptState.EMPTY_SHARD: YES,
    ReceiptState.SHORT: (True, False, False),
    ReceiptState.LONG: (True, False, False),
    ReceiptState.FLIPPED: (True, True, False),
    ReceiptState.PLACEHOLDER: (True, True, False),
}

once = settings(max_examples=200, derandomize=True, database=None, deadline=None)


def drawn(strategy: st.SearchStrategy[Any], n_examples: int = 200) -> list[Any]:
    """What a property test sees."""
    found: list[Any] = []
    many = settings(once, max_examples=n_examples)
    many(given(strategy)(lambda value: found.append(value)))()  # noqa: PLW0108 - no builtins there
    return found


def is_done(path: Path, index: int, level: str) -> bool:
    """A right reader, by the standard library alone and without any speed."""
    try:
        text = (path / "receipts" / f"shard_{index:06}.json").read_text()
        receipt = json.loads(text, object_pairs_hook=no_key_twice)
        plan = json.loads((path / "plan.json").read_text())
        assert receipt["plan_hash"] == plan["plan_hash"]
        assert (receipt["shard_index"], receipt["status"]) == (index, "completed")
        is_empty = receipt["stats"]["num_sequences"] == 0
        assert is_empty or set(receipt["files"]) == set(plan["kinds"])
        files = [file for file in receipt["files"].values() if file["bytes"] or not is_empty]
        assert all(is_kept(path, file, level) for file in files)
    except (OSError, ValueError, KeyError, AssertionError):
        return False
    return True


def no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def is_kept(path: Path, file: dict[str, Any], level: str) -> bool:
    target = path / file["path"]
    assert stat.S_ISREG(os.lstat(target).st_mode)
    assert ".." not in target.parts
    content = target.read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {
        "present": len(content) > 0,
        "complete": len(content) == file["bytes"],
        "valid": digest == file["checksum"],
    }[level]


class TestLayout:
    @given(receipts_layouts())
    def test_its_repr_makes_it_again(self, value: ReceiptsLayout) -> None:
        assert eval(repr(value)) == value

    def test_defaults_are_left_out(self) -> None:
        assert repr(receipts_layout()) == "receipts_layout(n_shards=3)"
        value = receipts_layout(4, torn={2}, started=(1, 0), seed=7)
        assert repr(value) == "receipts_layout(n_shards=4, started=[0, 1], torn=[2], seed=7)"

    def test_it_is_a_value(self) -> None:
        assert {receipts_layout(2, torn=[1])} == {receipts_layout(2, torn=(1,))}
        with pytest.raises(AttributeError):
            receipts_layout().seed = 3  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("keywords", "error", "text"),
        [
            ({"n_shards": True}, TypeError, "n_shards: expected int, found True"),
            ({"n_shards": 0}, ValueError, "n_shards: expected 1 or more, found 0"),
            ({"seed": "1"}, TypeError, "seed: expected int, found '1'"),
            ({"torn": [3]}, ValueError, "torn: expected indices from 0 below 3, found 3"),
            ({"torn": [-1]}, ValueError, "torn: expected indices from 0 below 3, found -1"),
            ({"torn": [1.0]}, TypeError, "torn: expected indices of type int, found 1.0"),
            ({"torn": [1], "short": [1]}, ValueError, "short: shard 1 is already named under torn"),
            ({"completed": [1]}, TypeError, "expected one of .*, found 'completed'"),
        ],
    )
    def test_wrong_arguments(self, keywords: dict, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            receipts_layout(**keywords)

    def test_a_plan_is_named_by_what_goes_into_it(self) -> None:
        values = [receipts_layout(), receipts_layout(2), receipts_layout(seed=1)]
        for name in ("plan_hash", "run_hash"):
            assert len({getattr(value, name) for value in values}) == 3
            assert getattr(receipts_layout(torn=[0]), name) == getattr(values[0], name)

    def test_every_state_is_a_keyword(self) -> None:
        assert set(ALL.states) == set(ReceiptState)
        assert [ALL.indices(state) for state in ReceiptState] == [(i,) for i in range(len(DONE))]


class TestWriting:
    def test_where(self, tmp_path: Path) -> None:
        value = receipts_layout(2)
        path = write_receipts(value, tmp_path)
        expected = f"runs/{value.run_hash}/datasets/corpus/{value.plan_hash}"
        assert path == tmp_path / expected
        assert sorted(os.listdir(path / "receipts")) == ["shard_000000.json", "shard_000001.json"]
        with pytest.raises(FileExistsError):
            write_receipts(value, tmp_path)

    def test_plans_share_an_output_directory(self, tmp_path: Path) -> None:
        write_receipts(receipts_layout(), tmp_path)
        assert write_receipts(receipts_layout(seed=1), tmp_path).is_dir()

    def test_no_two_outputs_are_equal(self, tmp_path: Path) -> None:
        for seed in range(2):
            write_receipts(receipts_layout(3, seed=seed), tmp_path)
        contents = [path.read_bytes() for path in tmp_path.rglob("shard_*.[bi][id][nx]")]
        assert len(set(contents)) == len(contents) == 12

    def test_our_readers_take_the_plan_and_the_receipt(self, tmp_path: Path) -> None:
        value = receipts_layout(2)
        path = write_receipts(value, tmp_path)
        plan, receipt = receipts.Plan.load(path), ReceiptStore(path).receipt(1)
        assert (plan.plan_hash, plan.n_shards) == (value.plan_hash, 2)
        assert (receipt.plan_hash, receipt.run_hash) == (value.plan_hash, value.run_hash)
        assert receipt.files is not None
        for kind, name in (("bin", "shard_000001.bin"), ("idx", "shard_000001.idx")):
            content = output_bytes(value, 1, kind)
            assert (path / name).read_bytes() == content
            digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
            assert receipt.files[kind] == {"path": name, "bytes": len(content), "checksum": digest}

    def test_no_two_states_are_the_same_on_disk(self) -> None:
        seen = []
        for state in ReceiptState:
            value = ReceiptsLayout(states=(state,))
            with receipts_dir(value) as path:
                files = {
                    os.path.relpath(file, path): (file.stat().st_mode, content_of(file))
                    for file in [*path.rglob("*"), *path.parent.glob("*.bin")]
                }
            seen.append(sorted(files.items(), key=repr))
        assert not [one for one in seen if seen.count(one) > 1]


def content_of(path: Path) -> bytes | None:
    readable = path.is_file() and path.stat().st_mode & stat.S_IRUSR
    return path.read_bytes() if readable else None


class TestOracle:
    @pytest.mark.parametrize("level", LEVELS)
    def test_it_says_what_the_table_says(self, level: str) -> None:
        pending = expected_pending(ALL, level)
        at = LEVELS.index(level)
        assert [ALL.states[index] for index in pending] == [s for s in DONE if not DONE[s][at]]

    def test_complete_is_the_default(self) -> None:
        assert expected_pending(ALL) == expected_pending(ALL, "complete")

    def test_a_level_that_there_is_not(self) -> None:
        with pytest.raises(ValueError, match="expected one of present, complete, valid, found 'x'"):
            expected_pending(ALL, "x")

    @settings(max_examples=60, deadline=None)
    @given(receipts_layouts())
    def test_it_agrees_with_a_plain_reader(self, value: ReceiptsLayout) -> None:
        with receipts_dir(value) as path:
            for level in LEVELS:
                pending = [i for i in range(value.n_shards) if not is_done(path, i, level)]
                assert tuple(pending) == expected_pending(value, level)

    @settings(max_examples=60, deadline=None)
    @given(receipts_layouts())
    def test_it_agrees_with_our_store(self, value: ReceiptsLayout) -> None:
        with receipts_dir(value) as path:
            store = ReceiptStore(path)
            for level in LEVELS:
                pending = expected_pending(value, level)
                assert tuple(store.pending(level=level)) == pending
                done = [store.verdict(i, level=level).completed for i in range(value.n_shards)]
                assert done == [i not in pending for i in range(value.n_shards)]

    @pytest.mark.parametrize("level", LEVELS)
    def test_our_store_knows_every_state(self, level: Any) -> None:
        with receipts_dir(ALL) as path:
            assert tuple(ReceiptStore(path).pending(level=level)) == expected_pending(ALL, level)


class TestFixture:
    def test_by_default(self, make_receipts_dir: MakeReceiptsDir) -> None:
        path = make_receipts_dir()
        assert ReceiptStore(path).n_shards == 3
        assert ReceiptStore(path).pending(level="valid") == []

    def test_states(self, make_receipts_dir: MakeReceiptsDir) -> None:
        path = make_receipts_dir(n_shards=8, started=[1], missing_outputs=[2], missing_bin=[5])
        assert ReceiptStore(path).pending() == [1, 2, 5]
        assert not list(path.glob("shard_000002.*"))

    def test_calls_do_not_meet(self, make_receipts_dir: MakeReceiptsDir, tmp_path: Path) -> None:
        one, other = make_receipts_dir(), make_receipts_dir()
        assert one.parents[4] != other.parents[4]
        assert one.name == other.name
        assert one.is_relative_to(tmp_path)

    def test_nothing_is_written_after_a_refusal(
        self, make_receipts_dir: MakeReceiptsDir, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match="already named"):
            make_receipts_dir(missing_outputs=[1], torn=[1])
        assert os.listdir(tmp_path) == []

    def test_modes_are_restored_at_the_end(self, tmp_path: Path) -> None:
        with receipts_dir_maker(lambda: tmp_path / "one") as make:
            path = make(2, unreadable=[0])
            assert stat.S_IMODE((path / "shard_000000.bin").stat().st_mode) == 0
        assert stat.S_IMODE((path / "shard_000000.bin").stat().st_mode) == 0o600

    def test_the_context_manager_leaves_nothing(self) -> None:
        with without_root_override(), receipts_dir(ALL) as path:
            base = path.parents[4]
            assert base.exists()
        assert not base.exists()


class TestLayouts:
    @pytest.mark.once
    def test_one_bad_shard_is_the_least_that_shows_a_bug(self) -> None:
        for state in set(ReceiptState) - {ReceiptState.COMPLETED}:
            least = find(receipts_layouts(), lambda value, state=state: state in value.states)
            assert least == receipts_layout(1, **{state.value: [0]})

    def test_what_is_done_is_common_and_so_are_ruins(self) -> None:
        values = drawn(receipts_layouts())
        done = sum(set(value.states) == {ReceiptState.COMPLETED} for value in values)
        assert 20 < done < len(values) / 2
        assert any(ReceiptState.COMPLETED not in value.states for value in values)
        assert Counter(state for value in values for state in value.states).keys() == DONE.keys()
        assert {value.seed for value in values} == {0, 1, 2, 3}

    def test_what_is_asked_for(self) -> None:
        values = drawn(receipts_layouts(max_shards=2, states=["torn"]))
        assert {state for value in values for state in value.states} == {"completed", "torn"}
        assert {value.n_shards for value in values} == {1, 2}

    @pytest.mark.parametrize(
        ("arguments", "error", "text"),
        [
            ({"max_shards": 0}, ValueError, "max_shards: expected 1 or more, found 0"),
            ({"max_shards": 1.5}, TypeError, "max_shards: expected int, found 1.5"),
            ({"states": ["nonsense"]}, ValueError, "'nonsense' is not a valid ReceiptState"),
        ],
    )
    def test_wrong_arguments(self, arguments: dict, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            receipts_layouts(**arguments)

    def test_states(self) -> None:
        assert set(drawn(receipt_states())) == set(ReceiptState)
        assert set(drawn(receipt_states(["torn"]))) == {ReceiptState.TORN}
        assert find(receipt_states(), lambda _: True) is ReceiptState.COMPLETED
        with pytest.raises(ValueError, match="expected one or more, found none"):
            receipt_states([])


@given(...)
def test_hypothesis_knows_layouts_by_their_type(value: ReceiptsLayout, state: ReceiptState) -> None:
    assert isinstance(value, ReceiptsLayout)
    assert isinstance(state, ReceiptState)


def whatever(receipt: Any) -> bool:
    """Whether a receipt can be read at all."""
    return True


def by_values(receipt: Any) -> bool:
    """As Python compares: False is 0."""
    files = receipt["files"]
    is_empty = receipt["stats"]["num_sequences"] == 0
    return receipt["status"] == "completed" and (bool(files) or is_empty)


def by_index(receipt: Any) -> bool:
    return receipt["shard_index"] == 0 and by_values(receipt)


def by_plan(receipt: Any) -> bool:
    return receipt["plan_hash"] == receipts_layout(1).plan_hash and by_index(receipt)


class TestHostileReceipts:
    @settings(max_examples=300, deadline=None)
    @given(hostile_receipts())
    def test_our_store_believes_none_and_trips_over_none(self, text: bytes) -> None:
        with receipts_dir(receipts_layout(1)) as path:
            (path / "receipts" / "shard_000000.json").write_bytes(text)
            store = ReceiptStore(path)
            for level in LEVELS:
                assert store.pending(level=level) == [0]
                assert not store.verdict(0, level=level).completed

    def test_the_least_is_empty(self) -> None:
        assert find(hostile_receipts(), lambda _: True) == b""

    @pytest.mark.parametrize("is_believed", [whatever, by_values, by_index, by_plan])
    def test_a_gullible_reader_is_found_out(self, is_believed: Callable[[Any], bool]) -> None:
        believed = find(hostile_receipts(), lambda text: reads(text, is_believed))
        assert believed != receipt_bytes(receipts_layout(1), 0)

    def test_lies_of_every_kind(self) -> None:
        parts = [
            rb'"\.\./',
            rb'"status": (?!"c)',
            rb'"shard_index": (?!0)',
            rb'"plan_hash": (?!"\w)',
        ]
        parts += [rb'"num_sequences": (?!4)', rb'"files": (?!\{"b)', rb'"bytes": (?!\d)', b"NaN"]
        parts += [b"\xff", b"1e400"]
        texts = drawn(hostile_receipts(), 1000)
        assert not [part for part in parts if not any(re.search(part, text) for text in texts)]

    def test_another_shard_of_another_plan(self) -> None:
        value = receipts_layout(3, seed=5)
        for text in drawn(hostile_receipts(value, 1)):
            assert text != receipt_bytes(value, 1)
        assert value.plan_hash.encode() in find(hostile_receipts(value, 1), lambda t: b"idx" in t)

    def test_a_shard_that_is_not_done_anyway(self) -> None:
        with pytest.raises(ValueError, match="shard 1: expected completed, found torn"):
            hostile_receipts(receipts_layout(torn=[1]), 1)


def reads(text: bytes, is_believed: Callable[[Any], bool]) -> bool:
    """Whether a reader that uses Python's json believes a receipt."""
    try:
        return is_believed(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
