"""Receipts: what became of one shard, as a small JSON file that outlives the job.

The fields are those of NVIDIA-NeMo/Nemotron's data_prep, whose receipts are read as they are.
"""

from typing import Any, Literal

import msgspec

from shardproof._base import json
from shardproof.errors import ManifestError, ReceiptError
from shardproof.receipts.plan._canonical import plain
from shardproof.receipts.plan._layout import MAX_RECEIPT_BYTES

__all__ = [
    "OUTPUT_FILE",
    "OWN_FIELDS",
    "SCHEMA_VERSION",
    "Receipt",
    "Status",
    "decode_receipt",
    "encode_receipt",
]

OUTPUT_FILE = "output_file"
"""The field by which Nemotron finds the output of a shard of JSON lines."""

SCHEMA_VERSION = 1
"""Of the fields below. A receipt that doesn't say, as Nemotron's, has these."""

Status = Literal["started", "completed", "failed"]


class _Fields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a receipt that this version knows; see `Receipt`."""

    status: Status
    plan_hash: str
    shard_index: int
    run_hash: str | None = None
    dataset_name: str | None = None
    schema_version: int = SCHEMA_VERSION
    started_at: float | None = None
    completed_at: float | None = None
    failed_at: float | None = None
    stats: dict[str, Any] | None = None
    files: dict[str, Any] | None = None
    kinds: tuple[str, ...] | None = None
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None


class Receipt(_Fields, frozen=True, kw_only=True):
    """The record that one shard was started, completed or failed.

    Attributes:
        status: Which of the three.
        plan_hash: The plan that it was done for.
        shard_index: The shard.
        run_hash: The run that the plan is part of.
        dataset_name: The data set.
        schema_version: Of these fields; 1.
        started_at: Unix seconds, as all times here, by the clock of the worker.
        completed_at: See ``started_at``.
        failed_at: See ``started_at``.
        stats: Counts of the stage, such as ``num_sequences``.
        files: What it wrote: ``{kind: {"path": ..., "bytes": ..., "checksum": ...}}``.
        kinds: The kinds of outputs that the shard owes, where its plan doesn't say; Nemotron's
            receipts have none.
        error_type: Class of the exception that ended it.
        error_message: Its text.
        traceback: Where it came from.
        extra: Further fields of the same text, such as ``output_file``; those that this version
            doesn't know are kept.
    """

    extra: dict[str, Any] = {}


_FIELDS = frozenset(_Fields.__struct_fields__)

OWN_FIELDS = _FIELDS | {OUTPUT_FILE}
"""Fields that say what became of a shard: nobody else may write them."""


def decode_receipt(data: bytes, path: str) -> Receipt:
    """Return the receipt that a file holds.

    Raises:
        ManifestError: It holds none; the text names ``path``, the line and the field.
    """
    if len(data) > MAX_RECEIPT_BYTES:
        raise ManifestError(f"expected at most {MAX_RECEIPT_BYTES} bytes, found more", path=path)
    known = json.decode(data, _Fields, path=path)
    if known.schema_version != SCHEMA_VERSION:
        problem = f"expected schema_version {SCHEMA_VERSION}, found {known.schema_version}"
        raise ManifestError(problem, path=path, field="$.schema_version")
    said = json.fields_in(data, path=path)
    extra = {name: value for name, value in said.items() if name not in _FIELDS}
    return Receipt(**msgspec.structs.asdict(known), extra=extra)


def encode_receipt(receipt: Receipt) -> bytes:
    """Return the text of a receipt.

    Raises:
        ReceiptError: It is larger than what is read again.
        TypeError: Its stats are no JSON.
        ValueError: There is NaN or infinity in them.
    """
    said = {name: getattr(receipt, name) for name in Receipt.__struct_fields__ if name != "extra"}
    text = {name: value for name, value in said.items() if value is not None} | receipt.extra
    data = msgspec.json.encode(plain(text, "receipt"))
    if len(data) > MAX_RECEIPT_BYTES:
        raise ReceiptError(f"expected a receipt of at most {MAX_RECEIPT_BYTES} bytes")
    return data + b"\n"
