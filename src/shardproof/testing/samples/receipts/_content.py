"""What is in the files of a plan directory: the plan, the receipts, and the outputs when whole."""

import enum
import hashlib
import json
from typing import Any

from shardproof.testing.samples._layout import Layout

_SIZES = {"bin": 96, "idx": 40}
_N_ROWS = 4
_BEGAN = 1735689600.0  # Unix time of the first second of 2025
_INPUT = {"size": 1000, "mtime": _BEGAN}


class ReceiptState(enum.StrEnum):
    """What became of one shard of a data-prep run: of its receipt, or of the outputs it names.

    docs/receipts-kit.md has the table of what is done.
    """

    OK = "ok"  # done: its receipt says so, and its two outputs are whole
    ABSENT = "absent"  # not begun: there is no receipt, and no output
    STARTED = "started"  # begun by a job that was killed; its outputs look whole
    FAILED = "failed"  # ended by an exception; its outputs look whole
    CORRUPT = "corrupt"  # the receipt is no JSON
    TORN = "torn"  # the receipt is cut in the middle
    BLANK = "blank"  # the receipt has 0 bytes
    FOREIGN = "foreign"  # the receipt is one of another plan
    MISPLACED = "misplaced"  # the receipt is one of another shard
    TWICE = "twice"  # the receipt says failed, and then, by the same key, completed
    UNLISTED = "unlisted"  # the receipt says completed, with rows, and has no list of files
    NAMELESS = "nameless"  # the receipt says completed, with rows, and its list of files is empty
    ONLY_BIN = "only_bin"  # the receipt names the first output alone, and there is no second one
    ONLY_IDX = "only_idx"  # the receipt names the second output alone, and there is no first one
    EMPTY_SHARD = "empty_shard"  # done: it has no rows, and owes no outputs
    MISSING_BIN = "missing_bin"  # the first output is gone, as after a purge
    MISSING_IDX = "missing_idx"  # the second output is gone
    MISSING = "missing"  # both outputs are gone, and the receipt is not
    EMPTY = "empty"  # the first output has 0 bytes
    TRUNCATED = "truncated"  # the first output is cut in the middle
    EXTENDED = "extended"  # the first output has one byte more
    FLIPPED = "flipped"  # one bit in the middle of the first output is another; the size is right
    DIRECTORY = "directory"  # a directory in the place of the first output
    UNREADABLE = "unreadable"  # no user may read the first output (chmod 0)
    ESCAPING = "escaping"  # the receipt names a whole file outside the plan directory
    PLACEHOLDER = "placeholder"  # whole, with "xxh64:unknown" for digests: nothing can be proven


def whole_bytes(layout: Layout, name: str) -> bytes:
    """Return what is in a whole file of the directory: in its plan, a receipt, or an output."""
    digits, _, suffix = name.removeprefix("receipts/").removeprefix("shard_").partition(".")
    index = int(digits) if digits.isdecimal() else layout.n_shards
    options = layout.options
    if index < layout.n_shards and name == options.receipt_name(index):
        return json.dumps(_completed(layout, index)).encode()
    if index < layout.n_shards and name in {options.bin_name(index), options.idx_name(index)}:
        return output_bytes(layout, index, suffix)
    if name != "plan.json":
        expected = "plan.json, or that of a receipt or an output"
        raise ValueError(f"name: expected {expected}, found {name!r}")

    inputs = [f"part-{index:06}.jsonl" for index in range(layout.n_shards)]
    plan = {
        "version": "1.0",
        "created_at": "2025-01-01T00:00:00Z",
        "plan_hash": layout.plan_hash,
        "dataset_name": layout.dataset_name,
        "num_shards": layout.n_shards,
        "source_fingerprint": f"sha256:{hashlib.sha256(layout.plan_hash.encode()).hexdigest()}",
        "config_hash": hashlib.sha256(b"no settings").hexdigest()[:16],
        "determinism_constraints": {},
        "resolved_tokenizer": {"type": "none"},
        "file_assignments": [
            {
                "shard_index": index,
                "files": [{"path": each, "local_path": f"/data/corpus/{each}"} | _INPUT],
                "total_bytes": _INPUT["size"],
            }
            for index, each in enumerate(inputs)
        ],
        "pins": [],
        "kinds": ["bin", "idx"],
    }
    return json.dumps(plan, indent=1).encode()


def output_bytes(layout: Layout, index: int, kind: str) -> bytes:
    """Return what is in a shard's whole output: no two outputs of any plan have the same bytes.

    Args:
        layout: The directory; what became of the shard does not matter.
        index: The shard.
        kind: ``"bin"``, which has 96 bytes, or ``"idx"``, which has 40.

    Raises:
        KeyError: Another kind.

    Example:
        >>> len(output_bytes(Layout(format="receipts"), 0, "bin"))
        96
    """
    text = f"{kind} of shard {index} of plan {layout.plan_hash}"
    return hashlib.shake_256(text.encode()).digest(_SIZES[kind])


def receipt_bytes(layout: Layout, index: int) -> bytes | None:
    """Return the text of a shard's receipt in its state; None where there is none.

    Example:
        >>> receipt_bytes(Layout(format="receipts", blank=[0], absent=[1]), 0)
        b''
    """
    state = layout.states[index]
    if state is ReceiptState.ABSENT:
        return None
    receipt = _completed(layout, index)
    _change(receipt, state)
    text = json.dumps(receipt).encode()
    if state is ReceiptState.CORRUPT:
        return text.replace(b'"', b"'")  # as Python prints a dict
    if state is ReceiptState.TORN:
        return text[: len(text) // 2]
    if state is ReceiptState.BLANK:
        return b""
    if state is ReceiptState.TWICE:
        return b'{"status": "failed", ' + text[1:]
    return text


def _completed(layout: Layout, index: int) -> dict[str, Any]:
    names = {"bin": layout.bin_name(index), "idx": layout.idx_name(index)}
    files = {}
    for kind, name in names.items():
        content = output_bytes(layout, index, kind)
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        files[kind] = {"path": name, "bytes": len(content), "checksum": checksum}
    return {
        "status": "completed",
        "plan_hash": layout.plan_hash,
        "shard_index": index,
        "run_hash": layout.run_hash,
        "dataset_name": layout.dataset_name,
        "schema_version": 1,
        "completed_at": _BEGAN + index,
        "stats": {"num_sequences": _N_ROWS},
        "files": files,
    }


def _change(receipt: dict[str, Any], state: str) -> None:
    """Make a completed shard's receipt say what a state says."""
    files = receipt["files"]
    match state:
        case ReceiptState.STARTED:
            receipt |= {"status": "started", "started_at": receipt.pop("completed_at")}
            del receipt["stats"], receipt["files"]
        case ReceiptState.FAILED:
            # With the list of files, which no reader may take for a proof of anything.
            receipt |= {"status": "failed", "failed_at": receipt.pop("completed_at")}
            receipt |= {
                "error_type": "OSError",
                "error_message": "[Errno 28] No space left on device",
            }
            receipt["traceback"] = "Traceback (most recent call last):\n  ...\n"
        case ReceiptState.FOREIGN:
            receipt["plan_hash"] = "0123456789abcdef"
        case ReceiptState.MISPLACED:
            receipt["shard_index"] = receipt["shard_index"] - 1 if receipt["shard_index"] else 1
        case ReceiptState.UNLISTED:
            del receipt["files"]
        case ReceiptState.NAMELESS:
            receipt["files"] = {}
        case ReceiptState.ONLY_BIN | ReceiptState.ONLY_IDX:
            del files["idx" if state == ReceiptState.ONLY_BIN else "bin"]
        case ReceiptState.EMPTY_SHARD:
            receipt["stats"]["num_sequences"] = 0
            for file in files.values():
                file |= {"bytes": 0, "checksum": "xxh64:empty"}
        case ReceiptState.ESCAPING:
            files["bin"]["path"] = "../" + files["bin"]["path"]
        case ReceiptState.PLACEHOLDER:
            for file in files.values():
                file["checksum"] = "xxh64:unknown"
