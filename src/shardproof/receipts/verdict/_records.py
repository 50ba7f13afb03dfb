"""Receipts: what became of one shard, as a small JSON file that outlives the job.

The fields are those of NVIDIA-NeMo/Nemotron's data_prep, whose receipts are read as they are.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from shardproof._base import json
from shardproof._base.files import telling_where
from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import OPEN_FLAGS, file_type
from shardproof._base.opening import mode_of, permission_denied
from shardproof.errors import ManifestError, ManifestPermissionError, ReceiptError
from shardproof.receipts.plan._canonical import plain
from shardproof.receipts.plan._directories import (
    MAX_RECEIPT_BYTES,
    RECEIPTS,
    receipt_name,
)

OUTPUT_FILE = "output_file"
"""The field by which Nemotron finds the output of a shard of JSON lines."""

_SCHEMA_VERSION = 1
"""Of the fields below. A receipt that doesn't say, as Nemotron's, has these."""


class _Fields(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a receipt that this version knows; see `Receipt`."""

    status: Literal["started", "completed", "failed"]
    plan_hash: str
    shard_index: int
    run_hash: str | None = None
    dataset_name: str | None = None
    schema_version: int = _SCHEMA_VERSION
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
"""Fields that say what became of a shard: `ClaimedShard.record` does not write them."""


def decode_receipt(data: bytes, path: str) -> Receipt:
    """Return the receipt that a file holds; raise `ManifestError` where it holds none."""
    if len(data) > MAX_RECEIPT_BYTES:
        raise ManifestError(f"expected at most {MAX_RECEIPT_BYTES} bytes, found more", path=path)
    known = json.decode(data, _Fields, path=path)
    if known.schema_version != _SCHEMA_VERSION:
        problem = f"expected schema_version {_SCHEMA_VERSION}, found {known.schema_version}"
        raise ManifestError(problem, path=path, field="$.schema_version")
    said = json.fields_in(data, path=path)
    extra = {name: value for name, value in said.items() if name not in _FIELDS}
    return Receipt(**msgspec.structs.asdict(known), extra=extra)


def encode_receipt(receipt: Receipt) -> bytes:
    """Return the text of a receipt; refuse one that is larger than what is read again."""
    said = {name: getattr(receipt, name) for name in Receipt.__struct_fields__ if name != "extra"}
    text = {name: value for name, value in said.items() if value is not None} | receipt.extra
    data = _encoded(plain(text, "receipt"), "receipt")
    if len(data) > MAX_RECEIPT_BYTES:
        raise ReceiptError(f"expected a receipt of at most {MAX_RECEIPT_BYTES} bytes")
    return data + b"\n"


def _encoded(value: object, where: str) -> bytes:
    """Return a value as JSON; what has no text there is a `ValueError` that names the field."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        for name, item in value.items() if isinstance(value, dict) else ():
            _encoded(item, f"{where}.{shown(name)}")
        raise ValueError(f"{where}: expected Unicode, found {quoted(error.object)}") from None


def read_receipt(root: str, index: int) -> Receipt:
    """Return a shard's receipt; raise `ManifestNotFoundError` where there is none."""
    path = os.path.join(_receipts_dir(root), receipt_name(index))
    with telling_where(path):
        name = f"{RECEIPTS}/{receipt_name(index)}"
        data = json.read_bytes(root, name, max_bytes=MAX_RECEIPT_BYTES)
    return decode_receipt(data, path)


@contextlib.contextmanager
def open_receipts(root: str, root_fd: int) -> Iterator[int | None]:
    """Yield a descriptor of the directory of receipts; None where there is none yet."""
    try:
        fd = os.open(RECEIPTS, OPEN_FLAGS | os.O_DIRECTORY, dir_fd=root_fd)
    except FileNotFoundError:
        yield None
        return
    except PermissionError as error:
        path = os.path.join(root, RECEIPTS)
        raise ManifestPermissionError(permission_denied(), path=path) from error
    except NotADirectoryError as error:
        problem = f"expected a directory of receipts: {told(error)}"
        raise ManifestError(problem, path=_receipts_dir(root)) from error
    try:
        yield fd
    finally:
        os.close(fd)


def _receipts_dir(root: str) -> str:
    """Return the path of the directory of receipts; refuse a link, which could lead anywhere."""
    path = os.path.join(root, RECEIPTS)
    mode = mode_of(path)
    if mode and not stat.S_ISDIR(mode):
        problem = f"expected a directory of receipts, found a {file_type(mode)}"
        raise ManifestError(problem, path=path)
    return path
