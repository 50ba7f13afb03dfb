"""Receipts: what became of one shard, as a small JSON file that outlives the job.

The fields are those of NVIDIA-NeMo/Nemotron's data_prep, whose receipts are read as they are, and
which reads these. It also writes ``output_file`` with ``checksum`` beside each other and without
``files`` (JSON lines), and ``files: {shard_path, shard_name}`` (WebDataset).
"""

from typing import Any, Literal, NamedTuple

import msgspec

from shardproof import _digest, _json
from shardproof._names import quoted, refusals
from shardproof.errors import ManifestError, ReceiptError
from shardproof.receipts._canonical import plain
from shardproof.receipts._layout import MAX_RECEIPT_BYTES

__all__ = [
    "Output",
    "Receipt",
    "Status",
    "decode_receipt",
    "encode_receipt",
    "is_empty",
    "outputs_of",
    "owed",
    "provable",
]

Status = Literal["started", "completed", "failed"]

_COUNTS = ("num_sequences", "num_records", "num_samples")


class Output(NamedTuple):
    """One file that a shard's work wrote.

    Attributes:
        kind: What it is called in the receipt, such as ``"bin"``.
        path: Relative to the plan directory; untrusted.
        bytes: Its size, where it was recorded.
        checksum: ``"<algorithm>:<hex>"``, where one was recorded that can be proven.
    """

    kind: str
    path: str
    bytes: int | None = None
    checksum: str | None = None


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
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
        error_type: Class of the exception that ended it.
        error_message: Its text.
        traceback: Where it came from.
        extra: Fields that this version doesn't know: they are kept.
    """

    status: Status
    plan_hash: str
    shard_index: int
    run_hash: str | None = None
    dataset_name: str | None = None
    schema_version: int = 1
    started_at: float | None = None
    completed_at: float | None = None
    failed_at: float | None = None
    stats: dict[str, Any] | None = None
    files: dict[str, Any] | None = None
    error_type: str | None = None
    error_message: str | None = None
    traceback: str | None = None
    extra: dict[str, Any] = {}


_FIELDS = frozenset(Receipt.__struct_fields__) - {"extra"}


class _File(msgspec.Struct):
    """One of a receipt's files, as far as it is known."""

    path: str
    bytes: int | None = None
    checksum: str | None = None


def decode_receipt(data: bytes, path: str) -> Receipt:
    """Return the receipt that a file holds.

    Raises:
        ManifestError: It holds none; the text names ``path``, the line and the field.
    """
    if len(data) > MAX_RECEIPT_BYTES:
        raise ManifestError(f"expected at most {MAX_RECEIPT_BYTES} bytes, found more", path=path)
    receipt = _json.decode(data, Receipt, path=path)
    said = msgspec.json.decode(data)
    extra = {name: value for name, value in said.items() if name not in _FIELDS}
    return msgspec.structs.replace(receipt, extra=extra)


def outputs_of(receipt: Receipt, path: str) -> list[Output]:
    """Return the outputs that a receipt names.

    Raises:
        ManifestError: They can't be told; the text names ``path``, which is the receipt's.
    """
    files = receipt.files or {}
    if isinstance(name := files.get("shard_name"), str):
        return [Output("shard_name", name)]
    if not files and isinstance(name := receipt.extra.get("output_file"), str):
        files = {"output_file": {"path": name, "checksum": receipt.extra.get("checksum")}}
    return [_output(kind, file, path) for kind, file in files.items()]


def _output(kind: str, file: object, path: str) -> Output:
    field = f"$.files.{kind[:80]}"
    try:
        said = msgspec.convert(file, _File)
    except msgspec.ValidationError as error:
        raise ManifestError(str(error), path=path, field=field) from error
    if refused := refusals([said.path]):
        problem = f"the name {quoted(said.path)} is refused: {refused[0].reason}"
        raise ManifestError(problem, path=path, field=field)
    if said.bytes is not None and said.bytes < 0:
        raise ManifestError(f"expected 0 bytes or more, found {said.bytes}", path=path, field=field)
    return Output(kind, said.path, said.bytes, provable(said.checksum))


def provable(checksum: str | None) -> str | None:
    """Return the digest where it is one that can be computed: a placeholder proves nothing."""
    try:
        return None if checksum is None else str(_digest.parse(checksum))
    except ValueError:
        return None


def is_empty(receipt: Receipt) -> bool:
    """Whether the receipt says that its shard holds nothing."""
    stats = receipt.stats or {}
    return any(type(stats.get(name)) is int and stats[name] == 0 for name in _COUNTS)


def owed(receipt: Receipt, path: str) -> list[Output]:
    """Return the outputs that must be there: all, but those of 0 bytes of an empty shard.

    Raises:
        ManifestError: They can't be told; or there are none, and the shard isn't said to be empty.
    """
    outputs = outputs_of(receipt, path)
    if is_empty(receipt):
        return [output for output in outputs if output.bytes]
    if not outputs:
        problem = "it says completed, names no files, and does not say that the shard is empty"
        raise ManifestError(problem, path=path, field="$.files")
    return outputs


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
