"""What a completed receipt says of its shard's outputs, and whether that is all that is owed.

Nemotron writes ``files: {kind: {path, bytes, checksum}}``, as we do; of JSON lines ``output_file``
with ``checksum`` beside each other and no ``files``; of WebDataset
``files: {shard_path, shard_name}``.
"""

from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec

from shardproof._base import digest
from shardproof._base.messages import quoted, told
from shardproof._base.names import refusals
from shardproof.errors import ManifestError
from shardproof.receipts.verdict._records import OUTPUT_FILE, Receipt

_COUNTS = ("num_sequences", "num_records", "num_samples")
_PAIR = ("bin", "idx")
_PAIRED = frozenset(_PAIR)
_JSONL = "jsonl"
_PACKED = ".zst"
_SHOWN = 5


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
    except msgspec.ValidationError as error:
        raise ManifestError(told(error), path=path, field=field) from None
    if refused := refusals([said.path]):
        problem = f"the name {quoted(said.path)} is refused: {refused[0].reason}"
        raise ManifestError(problem, path=path, field=field)
    if said.bytes is not None and said.bytes < 0:
        raise ManifestError(f"expected 0 bytes or more, found {said.bytes}", path=path, field=field)
    try:
        return Output(kind, said.path, said.bytes, provable(said.checksum))
    except ValueError as error:
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
    owed_kinds = kinds or (() if _PAIRED.isdisjoint(named) else _PAIR)
    lacking = [kind for kind in owed_kinds if kind not in named]
    if not lacking:
        return None
    problem = f"expected outputs of kinds {_listed(owed_kinds)}, found no {_listed(lacking)}"
    return problem if kinds else f"{problem}; a plan that owes less says so: make_plan(kinds=...)"


def _listed(kinds: Collection[str]) -> str:
    return ", ".join(map(quoted, sorted(kinds)[:_SHOWN])) + ", ..." * (len(kinds) > _SHOWN)


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
