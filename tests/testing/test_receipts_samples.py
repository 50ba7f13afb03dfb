"""Plan directories of data-prep runs: what is written, what the oracle says, what is drawn."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import find, given

from shardproof import ReceiptStore
from shardproof.testing import Layout, shards_dir, write_layout
from shardproof.testing.samples.receipts import (
    ReceiptState,
    expected_pending,
    receipt_bytes,
)
from shardproof.testing.strategies import hostile_manifests, layouts
from tests.helpers.drawing import examples

LEVELS = ("present", "complete", "valid")
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


def test_a_plan_is_named_by_what_goes_into_it() -> None:
    options: list[dict] = [{}, {"n_shards": 2}, {"seed": 1}]
    values = [Layout(format="receipts", **each) for each in options]
    for name in ("plan_hash", "run_hash"):
        assert len({getattr(value, name) for value in values}) == 3
        assert getattr(Layout(format="receipts", torn=[0]), name) == getattr(values[0], name)


class TestWriting:
    def test_where(self, tmp_path: Path) -> None:
        value = Layout(2, format="receipts", torn={1})
        path = write_layout(value, tmp_path / "plan")
        assert value.folder == f"runs/{value.run_hash}/datasets/corpus/{value.plan_hash}"
        assert sorted(os.listdir(path / "receipts")) == ["shard_000000.json", "shard_000001.json"]

    def test_what_leads_out_writes_over_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "shard_000001.bin").write_bytes(b"of somebody else")
        with pytest.raises(FileExistsError, match="shard_000001"):
            write_layout(Layout(2, format="receipts", escaping=[1]), tmp_path / "plan")
        assert (tmp_path / "shard_000001.bin").read_bytes() == b"of somebody else"

    def test_no_two_outputs_are_equal(self, tmp_path: Path) -> None:
        for seed in range(2):
            write_layout(Layout(3, format="receipts", seed=seed), tmp_path / str(seed))
        contents = [path.read_bytes() for path in tmp_path.rglob("shard_*.[bi][id][nx]")]
        assert len(set(contents)) == len(contents) == 12


class TestOracle:
    @pytest.mark.parametrize("level", LEVELS)
    def test_it_says_what_the_table_says(self, level: str) -> None:
        pending = expected_pending(Layout.of(ReceiptState, format="receipts"), level=level)
        states, at = [*ReceiptState], LEVELS.index(level)
        assert [states[index] for index in pending] == [s for s in DONE if not DONE[s][at]]

    @pytest.mark.slow
    @examples(60)
    @given(layouts(["receipts"]))
    def test_it_agrees_with_our_store(self, value: Layout) -> None:
        with shards_dir(value) as path:
            for level in LEVELS:
                pending = expected_pending(value, level=level)
                assert ReceiptStore(path).pending(level=level) == [*pending]


class TestHostileReceipts:
    @pytest.mark.slow
    @examples(300)
    @given(hostile_manifests("receipts"))
    def test_our_store_believes_none_and_trips_over_none(self, text: bytes) -> None:
        with shards_dir(Layout(1, format="receipts")) as path:
            (path / "receipts" / "shard_000000.json").write_bytes(text)
            store = ReceiptStore(path)
            for level in LEVELS:
                assert store.pending(level=level) == [0]
                assert not store.verdict(0, level=level).completed

    def test_a_gullible_reader_is_found_out(self) -> None:
        def is_believed(text: bytes) -> bool:
            """As Python reads and compares: False is 0."""
            try:
                receipt = json.loads(text)
                is_empty = receipt["stats"]["num_sequences"] == 0
                is_ours = receipt["plan_hash"] == whole.plan_hash and receipt["shard_index"] == 0
                is_done = receipt["status"] == "completed" and (receipt["files"] or is_empty)
            except (ValueError, TypeError, KeyError, RecursionError):
                return False
            return bool(is_ours and is_done)

        whole = Layout(1, format="receipts")
        assert find(hostile_manifests("receipts"), is_believed) != receipt_bytes(whole, 0)

    def test_a_shard_that_is_not_done_anyway(self) -> None:
        with pytest.raises(ValueError, match="shard 1: expected ok, found torn"):
            hostile_manifests(Layout(format="receipts", torn=[1]), index=1)
