"""Receipts: what became of one shard, as a small JSON file that outlives the job.

Nemotron's are read as they are: its JSON lines have ``output_file`` with ``checksum`` beside each
other and no ``files``, and its WebDataset ``files: {shard_path, shard_name}``.
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

import msgspec

from shardproof._base import digest, json
from shardproof._base.files import telling_where
from shardproof._base.messages import quoted, quoted_first, shown, told
from shardproof._base.names import OPEN_FLAGS, open_root, refusals
from shardproof._base.opening import closing_fd, permission_denied
from shardproof.errors import ManifestError, ManifestPermissionError, ReceiptError
from shardproof.receipts._canonical import plain
from shardproof.receipts._directories import MAX_RECEIPT_BYTES, RECEIPTS, folder_in, receipt_name

OUTPUT_FILE = "output_file"  # the field by which Nemotron finds the output of a shard of JSON lines
_SCHEMA_VERSION = 1  # of the fields below; a receipt that has none, as Nemotron's, has these
_COUNTS = ("num_sequences", "num_records", "num_samples")
_PAIR = ("bin", "idx")
_JSONL = "jsonl"
_PACKED = ".zst"


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
    path = os.path.join(folder_in(root, RECEIPTS), receipt_name(index))
    name = f"{RECEIPTS}/{receipt_name(index)}"
    return decode_receipt(json.read_bytes(root, name, max_bytes=MAX_RECEIPT_BYTES), path)


@contextlib.contextmanager
def opened_receipts(root: str) -> Iterator[tuple[int, int | None]]:
    """Yield descriptors of a plan directory, and of the receipts in it; None where are none yet."""
    with closing_fd(open_root(root)) as root_fd, contextlib.ExitStack() as stack:
        fd, path = None, os.path.join(root, RECEIPTS)
        try:
            with telling_where(path):
                fd = os.open(RECEIPTS, OPEN_FLAGS | os.O_DIRECTORY, dir_fd=root_fd)
            stack.callback(os.close, fd)
        except FileNotFoundError:
            pass
        except PermissionError as error:
            raise ManifestPermissionError(permission_denied(), path=path) from error
        except NotADirectoryError:
            folder_in(root, RECEIPTS)  # which says what is there
            raise
        yield root_fd, fd


class Output(NamedTuple):
    """One file that a shard's work wrote."""

    kind: str
    path: str  # relative to the plan directory; untrusted
    bytes: int | None = None
    checksum: str | None = None  # "<algorithm>:<hex>", of one that can be proven


class _RecordedFile(msgspec.Struct):
    """One of a receipt's files, as far as it is known."""

    path: str
    bytes: int | None = None
    checksum: str | None = None


def outputs_of(receipt: Receipt, path: str) -> list[Output]:
    """Return the outputs that a receipt names; raise `ManifestError` where they can't be told."""
    files = receipt.files or {}
    if isinstance(only := files.get("shard_name"), str):
        return [Output("shard_name", only)]
    outputs = [_output(kind, file, path, f"$.files.{kind[:80]}") for kind, file in files.items()]
    beside = receipt.extra.get(OUTPUT_FILE)
    if beside is not None and beside not in [output.path for output in outputs]:
        said = {"path": beside, "checksum": receipt.extra.get("checksum")}
        output = _output(_JSONL, said, path, f"$.{OUTPUT_FILE}")
        # Nemotron's digest is that of the lines before they were packed: it proves no file.
        outputs.append(output._replace(checksum=None) if beside.endswith(_PACKED) else output)
    return outputs


def _output(kind: str, file: object, path: str, field: str) -> Output:
    try:
        said = msgspec.convert(file, _RecordedFile)
        if refused := refusals([said.path]):
            raise ValueError(f"the name {quoted(said.path)} is refused: {refused[0].reason}")
        if said.bytes is not None and said.bytes < 0:
            raise ValueError(f"expected 0 bytes or more, found {said.bytes}")
        return Output(kind, said.path, said.bytes, provable(said.checksum))
    except (ValueError, msgspec.ValidationError) as error:
        raise ManifestError(told(error), path=path, field=field) from None


def kind_of(name: str) -> str:
    """Return what a receipt calls an output of which no kind was given: its suffix."""
    is_packed = name.endswith(f".{_JSONL}{_PACKED}")
    return _JSONL if is_packed else PurePosixPath(name).suffix[1:] or name


def beside_files(files: dict[str, Any]) -> dict[str, Any]:
    """Return what Nemotron goes by in receipts of JSON lines, beside ``files``."""
    return {OUTPUT_FILE: files[_JSONL]["path"]} if _JSONL in files else {}


def provable(checksum: str | None) -> str | None:
    """Return the digest where its algorithm is here: a placeholder of Nemotron's proves nothing."""
    is_none = checksum is None or checksum.endswith((":unknown", ":empty"))
    found = [] if is_none else digest.provable([checksum or ""])
    return str(digest.parse(found[0])) if found else None


def is_empty(receipt: Receipt) -> bool:
    """Whether the receipt says that its shard holds nothing."""
    stats = receipt.stats or {}
    return any(type(stats.get(name)) is int and stats[name] == 0 for name in _COUNTS)


def why_lacking(named: Collection[str], kinds: Collection[str] | None) -> str | None:
    """Return why outputs are too few, in words; None where each kind that is owed is named."""
    # Without any kinds, Nemotron's law holds: of `bin` and `idx` both or neither.
    owed_kinds = kinds or (_PAIR if any(kind in named for kind in _PAIR) else ())
    lacking = [kind for kind in owed_kinds if kind not in named]
    if not lacking:
        return None
    expected, none = quoted_first(sorted(owed_kinds)), quoted_first(sorted(lacking))
    problem = f"expected outputs of kinds {expected}, found no {none}"
    return problem if kinds else f"{problem}; a plan that owes less says so: make_plan(kinds=...)"


def owed(receipt: Receipt, path: str, kinds: Collection[str] = ()) -> list[Output]:
    """Return the outputs that must be there: all, but those of 0 bytes of an empty shard."""
    outputs = outputs_of(receipt, path)
    if is_empty(receipt):
        return [output for output in outputs if output.bytes]
    if not outputs:
        problem = "it says completed, names no files, and does not say that the shard is empty"
        raise ManifestError(problem, path=path, field="$.files")
    if lacking := why_lacking({output.kind for output in outputs}, kinds or receipt.kinds):
        raise ManifestError(lacking, path=path, field="$.files")
    return outputs
