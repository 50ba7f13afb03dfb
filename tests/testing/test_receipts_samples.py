"""Plan directories of data-prep runs: what is written, what the oracle says, what is drawn."""

import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import find, given

from shardproof import ReceiptStore, receipts
from shardproof.testing import (
    Layout,
    MakeShardsDir,
    shards_dir,
    without_root_override,
    write_layout,
)
from shardproof.testing.samples.receipts import (
    ReceiptState,
    expected_pending,
    output_bytes,
    receipt_bytes,
    receipts_dir_maker,
)
from shardproof.testing.strategies import hostile_manifests, layouts
from tests.helpers.drawing import drawn, drawn_until, examples

LEVELS = ("present", "complete", "valid")
ALL = Layout(
    len(ReceiptState), format="receipts", **{s.value: [i] for i, s in enumerate(ReceiptState) if i}
)

# By hand, to hold the oracle against: whether a shard is done at each level.
YES, NO = (True, True, True), (False, False, False)
DONE = dict.fromkeys(ReceiptState, NO) | {
    ReceiptState.OK: YES,
    ReceiptState.EMPTY_SHARD: YES,
    ReceiptState.TRUNCATED: (True, False, False),
    ReceiptState.EXTENDED: (True, False, False),
    ReceiptState.FLIPPED: (True, True, False),
    ReceiptState.PLACEHOLDER: (True, True, False),
}


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
    @given(layouts(["receipts"]))
    def test_its_repr_makes_it_again(self, value: Layout) -> None:
        assert eval(repr(value)) == value

    def test_defaults_are_left_out(self) -> None:
        assert repr(Layout(format="receipts")) == "Layout(n_shards=3, format='receipts')"
        value = Layout(4, format="receipts", torn={2}, started=(1, 0), seed=7)
        assert (
            repr(value) == "Layout(n_shards=4, format='receipts', started=[0, 1], torn=[2], seed=7)"
        )

    @pytest.mark.parametrize(
        ("keywords", "error", "text"),
        [
            ({"n_shards": True}, TypeError, "n_shards: expected int, found True"),
            ({"n_shards": 0}, ValueError, "n_shards: expected 1 or more, found 0"),
            ({"seed": "1"}, TypeError, "seed: expected int, found '1'"),
            ({"torn": [3]}, ValueError, "torn: expected indices from 0 below 3, found 3"),
            ({"torn": [-1]}, ValueError, "torn: expected indices from 0 below 3, found -1"),
            ({"torn": [1.0]}, TypeError, "torn: expected indices of type int, found 1.0"),
            ({"torn": [1], "truncated": [1]}, ValueError, "truncated: shard 1 is already named"),
            ({"completed": [1]}, TypeError, "there is no 'completed'|found 'completed'"),
        ],
    )
    def test_wrong_arguments(self, keywords: dict, error: type[Exception], text: str) -> None:
        with pytest.raises(error, match=text):
            Layout(format="receipts", **keywords)

    def test_a_plan_is_named_by_what_goes_into_it(self) -> None:
        values = [
            Layout(format="receipts"),
            Layout(2, format="receipts"),
            Layout(format="receipts", seed=1),
        ]
        for name in ("plan_hash", "run_hash"):
            assert len({getattr(value, name) for value in values}) == 3
            assert getattr(Layout(format="receipts", torn=[0]), name) == getattr(values[0], name)

    def test_every_state_is_a_keyword(self) -> None:
        assert set(ALL.states) == set(ReceiptState)
        assert [ALL.indices(state) for state in ReceiptState] == [(i,) for i in range(len(DONE))]


class TestWriting:
    def test_where(self, tmp_path: Path) -> None:
        value = Layout(2, format="receipts")
        path = write_layout(value, tmp_path)
        expected = f"runs/{value.run_hash}/datasets/corpus/{value.plan_hash}"
        assert path == tmp_path / expected
        assert sorted(os.listdir(path / "receipts")) == ["shard_000000.json", "shard_000001.json"]
        with pytest.raises(FileExistsError):
            write_layout(value, tmp_path)

    def test_plans_share_an_output_directory(self, tmp_path: Path) -> None:
        write_layout(Layout(format="receipts"), tmp_path)
        assert write_layout(Layout(format="receipts", seed=1), tmp_path).is_dir()

    def test_no_two_outputs_are_equal(self, tmp_path: Path) -> None:
        for seed in range(2):
            write_layout(Layout(3, format="receipts", seed=seed), tmp_path)
        contents = [path.read_bytes() for path in tmp_path.rglob("shard_*.[bi][id][nx]")]
        assert len(set(contents)) == len(contents) == 12

    def test_our_readers_take_the_plan_and_the_receipt(self, tmp_path: Path) -> None:
        value = Layout(2, format="receipts")
        path = write_layout(value, tmp_path)
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
            value = Layout.of([state], format="receipts")
            with shards_dir(value) as path:
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
        pending = expected_pending(ALL, level=level)
        at = LEVELS.index(level)
        assert [ALL.states[index] for index in pending] == [s for s in DONE if not DONE[s][at]]

    def test_a_level_that_there_is_not(self) -> None:
        with pytest.raises(ValueError, match="expected one of present, complete, valid, found 'x'"):
            expected_pending(ALL, level="x")

    @examples(60)
    @given(layouts(["receipts"]))
    def test_it_agrees_with_a_plain_reader(self, value: Layout) -> None:
        with shards_dir(value) as path:
            for level in LEVELS:
                pending = [i for i in range(value.n_shards) if not is_done(path, i, level)]
                assert tuple(pending) == expected_pending(value, level=level)

    @examples(60)
    @given(layouts(["receipts"]))
    def test_it_agrees_with_our_store(self, value: Layout) -> None:
        with shards_dir(value) as path:
            store = ReceiptStore(path)
            for level in LEVELS:
                pending = expected_pending(value, level=level)
                assert tuple(store.pending(level=level)) == pending
                done = [store.verdict(i, level=level).completed for i in range(value.n_shards)]
                assert done == [i not in pending for i in range(value.n_shards)]

    @pytest.mark.parametrize("level", LEVELS)
    def test_our_store_knows_every_state(self, level: Any) -> None:
        with shards_dir(ALL) as path:
            assert tuple(ReceiptStore(path).pending(level=level)) == expected_pending(
                ALL, level=level
            )


class TestFixture:
    def test_by_default(self, make_receipts_dir: MakeShardsDir) -> None:
        path = make_receipts_dir()
        assert ReceiptStore(path).n_shards == 3
        assert ReceiptStore(path).pending(level="valid") == []

    def test_states(self, make_receipts_dir: MakeShardsDir) -> None:
        path = make_receipts_dir(n_shards=8, started=[1], missing_outputs=[2], missing_bin=[5])
        assert ReceiptStore(path).pending() == [1, 2, 5]
        assert not list(path.glob("shard_000002.*"))

    def test_modes_are_restored_at_the_end(self, tmp_path: Path) -> None:
        with receipts_dir_maker(lambda: tmp_path / "one") as make:
            path = make(2, unreadable=[0])
            assert stat.S_IMODE((path / "shard_000000.bin").stat().st_mode) == 0
        assert stat.S_IMODE((path / "shard_000000.bin").stat().st_mode) == 0o600

    def test_the_context_manager_leaves_nothing(self) -> None:
        with without_root_override(), shards_dir(ALL) as path:
            base = path.parents[4]
            assert base.exists()
        assert not base.exists()


class TestLayouts:
    @pytest.mark.once
    def test_one_bad_shard_is_the_least_that_shows_a_bug(self) -> None:
        for state in set(ReceiptState) - {ReceiptState.OK}:
            least = find(layouts(["receipts"]), lambda value, state=state: state in value.states)
            assert least == Layout(1, format="receipts", **{state.value: [0]})

    @pytest.mark.once
    def test_what_is_done_is_common_and_so_are_ruins(self) -> None:
        def all_came(values: list[Layout]) -> None:
            assert {state for value in values for state in value.states} == DONE.keys()
            assert {value.seed for value in values} == {0, 1, 2, 3}
            assert any(ReceiptState.OK not in value.states for value in values)

        drawn_until(all_came, layouts(["receipts"]))
        values = drawn(layouts(["receipts"]), 1800)
        done = sum(set(value.states) == {ReceiptState.OK} for value in values)
        assert len(values) / 10 < done < len(values) / 2

    def test_what_is_asked_for(self) -> None:
        values = drawn(layouts(["receipts"], max_shards=2, states=["torn"]))
        assert {state for value in values for state in value.states} == {"ok", "torn"}
        assert {value.n_shards for value in values} == {1, 2}


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
    return receipt["plan_hash"] == Layout(1, format="receipts").plan_hash and by_index(receipt)


class TestHostileReceipts:
    @examples(300)
    @given(hostile_manifests("receipts"))
    def test_our_store_believes_none_and_trips_over_none(self, text: bytes) -> None:
        with shards_dir(Layout(1, format="receipts")) as path:
            (path / "receipts" / "shard_000000.json").write_bytes(text)
            store = ReceiptStore(path)
            for level in LEVELS:
                assert store.pending(level=level) == [0]
                assert not store.verdict(0, level=level).completed

    @pytest.mark.parametrize("is_believed", [whatever, by_values, by_index, by_plan])
    def test_a_gullible_reader_is_found_out(self, is_believed: Callable[[Any], bool]) -> None:
        believed = find(hostile_manifests("receipts"), lambda text: reads(text, is_believed))
        assert believed != receipt_bytes(Layout(1, format="receipts"), 0)

    def test_a_shard_that_is_not_done_anyway(self) -> None:
        with pytest.raises(ValueError, match="shard 1: expected ok, found torn"):
            hostile_manifests(Layout(format="receipts", torn=[1]), index=1)


def reads(text: bytes, is_believed: Callable[[Any], bool]) -> bool:
    """Whether a reader that uses Python's json believes a receipt."""
    try:
        return is_believed(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
