"""Receipts as text: Nemotron's are read as they are, and nothing is lost of newer ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof import ManifestError, ReceiptError
from shardproof.receipts import Receipt
from shardproof.receipts._records import (
    Output,
    decode_receipt,
    encode_receipt,
    is_empty,
    outputs_of,
    owed,
)

SHA = "sha256:" + "a" * 64
BASE = {"status": "completed", "plan_hash": "p", "shard_index": 3, "run_hash": "r"}
FILES = {
    "bin": {"path": "x.bin", "bytes": 3, "checksum": "xxh64:0123456789abcdef"},
    "idx": {"path": "x.idx", "bytes": 4, "checksum": SHA},
}


def decode(**fields) -> Receipt:
    return decode_receipt(json.dumps(BASE | fields).encode(), "/r.json")


def outputs(**fields) -> list[Output]:
    return owed(decode(**fields), "/r.json")


class TestNemotrons:
    def test_tokens(self) -> None:
        receipt = decode(
            dataset_name="d", completed_at=1.5, stats={"num_sequences": 2, "x": 0.5}, files=FILES
        )
        assert receipt.completed_at == 1.5
        assert receipt.schema_version == 1
        assert outputs_of(receipt, "/r.json") == [
            Output("bin", "x.bin", 3, "xxh64:0123456789abcdef"),
            Output("idx", "x.idx", 4, SHA),
        ]

    def test_json_lines(self) -> None:
        fields = {"stats": {"num_records": 2}, "files": {}, "checksum": "xxh64:0123456789abcdef"}
        assert outputs(**fields, output_file="x.jsonl") == [
            Output("jsonl", "x.jsonl", None, "xxh64:0123456789abcdef")
        ]

    def test_packed_json_lines_have_a_digest_of_other_bytes(self) -> None:
        """Of the lines before they were packed: whole files were said to be damaged by it."""
        fields = {"stats": {"num_records": 2}, "checksum": "xxh64:0123456789abcdef"}
        assert outputs(**fields, output_file="x.jsonl.zst") == [Output("jsonl", "x.jsonl.zst")]

    def test_a_web_dataset(self) -> None:
        files = {"shard_path": "/abs/train/x.tar", "shard_name": "train/x.tar"}
        assert outputs(files=files, stats={"num_samples": 2}) == [
            Output("shard_name", "train/x.tar")
        ]

    @pytest.mark.parametrize("placeholder", ["xxh64:unknown", "xxh64:empty"])
    def test_a_placeholder_proves_nothing(self, placeholder: str) -> None:
        files = {"parquet": {"path": "x.parquet", "bytes": 3, "checksum": placeholder}}
        assert outputs(files=files) == [Output("parquet", "x.parquet", 3, None)]

    @pytest.mark.parametrize("count", ["num_sequences", "num_records", "num_samples"])
    def test_an_empty_shard_owes_nothing(self, count: str) -> None:
        files = {"bin": {"path": "x.bin", "bytes": 0, "checksum": "xxh64:empty"}}
        assert outputs(files=files, stats={count: 0}) == []
        assert outputs(files={}, stats={count: 0}, output_file=None) == []


def test_an_empty_shard_owes_what_it_recorded_with_bytes() -> None:
    assert outputs(files=FILES, stats={"num_sequences": 0}) == outputs(files=FILES)


@pytest.mark.parametrize("count", [True, False, "0", None, 1, [], 0.5])
def test_what_is_not_the_number_zero_is_not_empty(count) -> None:
    assert not is_empty(decode(stats={"num_sequences": count}))


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.integers(-(2**40), 2**40) | st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_unknown_fields_are_kept(extra) -> None:
    extra = {f"new {name}": value for name, value in extra.items()}
    text = BASE | extra | {"schema_version": 1, "files": {"bin": FILES["bin"] | {"more": [1]}}}
    receipt = decode_receipt(json.dumps(text).encode(), "/r.json")
    assert receipt.extra == extra
    assert json.loads(encode_receipt(receipt)) == text


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"[]", "expected `object`"),
        (b'{"status": "completed"}', "missing required field `plan_hash`"),
        (json.dumps(BASE | {"status": "done"}).encode(), r"field \$\.status"),
        (json.dumps(BASE | {"shard_index": True}).encode(), r"field \$\.shard_index"),
        (json.dumps(BASE | {"files": []}).encode(), r"field \$\.files"),
        (json.dumps(BASE).encode()[:-1] + b', "status": "failed"}', "'status' stands twice"),
        (json.dumps(BASE | {"x": "y" * 2**20}).encode(), "expected at most 1048576 bytes"),
    ],
)
def test_what_is_no_receipt(text: bytes, match: str) -> None:
    with pytest.raises(ManifestError, match=match) as caught:
        decode_receipt(text, "/r.json")
    assert caught.value.path == "/r.json"


@pytest.mark.parametrize(
    ("file", "match"),
    [
        ("x.bin", "expected `object`"),
        ({}, "missing required field `path`"),
        ({"path": 5}, "expected `str`"),
        ({"path": "x", "bytes": True}, "expected `int | null`"),
        ({"path": "x", "bytes": -1}, "expected 0 bytes or more"),
        ({"path": "../x"}, "is refused"),
    ],
)
def test_outputs_that_can_not_be_told(file, match: str) -> None:
    with pytest.raises(ManifestError, match=r"field \$\.files\.bin") as caught:
        outputs(files={"bin": file})
    assert match.lower() in str(caught.value).lower()


def test_what_would_not_be_read_again_is_not_written() -> None:
    base = {"status": "completed", "plan_hash": "p", "shard_index": 3}
    with pytest.raises(ReceiptError, match="at most"):
        encode_receipt(Receipt(**base, stats={"x": "y" * 2**20}))
    with pytest.raises(TypeError, match=r"receipt\.stats\.x: expected values of JSON"):
        encode_receipt(Receipt(**base, stats={"x": {1}}))
    with pytest.raises(ValueError, match=r"receipt\.stats\.x: expected a finite number"):
        encode_receipt(Receipt(**base, stats={"x": float("nan")}))
