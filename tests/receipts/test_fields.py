"""What stands at the top of a receipt beside our own fields: for Nemotron and other readers."""

import json

import numpy as np
import pytest

import shardproof
from shardproof import ReceiptError, ReceiptStore
from tests.helpers.planning import new_store, receipt_path, rewrite_receipt

LIMIT = 2**16


@pytest.fixture
def store(tmp_path) -> ReceiptStore:
    return new_store(tmp_path)


def said(store: ReceiptStore, index: int = 0) -> dict:
    return json.loads(receipt_path(store, index).read_bytes())


def complete_lines(store: ReceiptStore, index: int, name: str, **keywords) -> None:
    with store.claim(index) as work:
        work.output_path(name, **keywords).write_text('{"text": "x"}\n')
        work.stats["num_records"] = 1


class TestJsonLines:
    @pytest.mark.parametrize(
        ("name", "keywords"),
        [
            ("shard_000000.jsonl", {}),
            ("shard_000000.jsonl.zst", {}),
            ("sub/part.jsonl", {}),
            ("part.gz", {"kind": "jsonl"}),
        ],
    )
    def test_a_receipt_has_the_fields_that_nemotron_goes_by(self, store, name, keywords) -> None:
        """Its planning, stage and finalize look for these, and for nothing in ``files``."""
        complete_lines(store, 0, name, **keywords)
        receipt = said(store)
        assert (receipt["status"], receipt["plan_hash"]) == ("completed", store.plan_hash)
        assert receipt["stats"]["num_records"] == 1
        assert (store.path / receipt["output_file"]).read_text() == '{"text": "x"}\n'
        assert list(receipt["files"]) == ["jsonl"]
        assert store.pending(level="valid") == [1, 2]

    def test_the_output_that_it_names_is_owed(self, store) -> None:
        complete_lines(store, 0, "a.jsonl")
        for name in ("b.jsonl", "A.jsonl", "../a.jsonl", "", 5):
            rewrite_receipt(store, 0, output_file=name)
            assert store.pending() == [0, 1, 2], name
        (store.path / "b.jsonl").touch()
        rewrite_receipt(store, 0, output_file="b.jsonl")
        assert store.pending() == [0, 1, 2]  # it is empty
        assert not shardproof.validate(store.path).ok
        (store.path / "b.jsonl").write_text("{}")
        assert store.pending() == [1, 2]


class TestRecord:
    def test_fields_stand_at_the_top(self, store) -> None:
        work = store.claim(0)
        work.record(split="train", sizes=[1, 2])
        with work:
            assert said(store)["split"] == "train"
            work.record(split="test", self=None)
            work.mark_empty()
        receipt = said(store)
        assert (receipt["split"], receipt["sizes"], receipt["self"]) == ("test", [1, 2], None)
        assert store.receipt(0).extra == {"split": "test", "sizes": [1, 2], "self": None}
        assert store.is_completed(0)

    def test_the_receipts_own_are_left_alone(self, store) -> None:
        complete_lines(store, 1, "a.jsonl")
        work = store.claim(0)
        for name in [*said(store, 1), "failed_at", "error_type", "traceback"]:
            with pytest.raises(ReceiptError, match=f"the field '{name}' is the receipt's own"):
                work.record(**{name: "x"})
        with work:
            work.mark_empty()
        assert store.is_completed(0)

    def test_text_that_is_no_unicode(self, store) -> None:
        work = store.claim(0)
        for fields in ({"split": "\ud800"}, {"\ud800": 1}, {"split": {"\ud800": 1}}):
            with pytest.raises(ValueError, match=r"fields: expected Unicode, found '\\ud800'"):
                work.record(**fields)
        with work:
            work.mark_empty()
        assert store.receipt(0).extra == {}

    @pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int8, np.uint64])
    def test_numbers_of_numpy_are_numbers(self, store, kind) -> None:
        """In counts too, which are looked at only when all the work is done."""
        with store.claim(0) as work:
            work.record(loss=kind(2))
            work.stats["loss"] = kind(2)
            work.mark_empty()
        assert store.receipt(0).extra == {"loss": 2}
        assert store.receipt(0).stats == {"loss": 2, "num_sequences": 0}

    def test_they_are_bounded_and_fit_beside_an_error(self, store) -> None:
        with pytest.raises(RuntimeError), store.claim(0) as work:  # noqa: PT012
            work.record(a="x" * (LIMIT - 20))
            with pytest.raises(ReceiptError, match=f"at most {LIMIT} bytes of further fields"):
                work.record(b="x" * 20)
            raise RuntimeError("\x01" * 10**6)
        assert store.receipt(0).status == "failed"
        assert list(store.receipt(0).extra) == ["a"]
