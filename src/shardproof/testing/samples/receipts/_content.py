"""What is in the files of a plan directory: the plan, the receipts, and the outputs when whole.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from shardproof.testing.samples.receipts._layout import ReceiptsLayout
from shardproof.testing.samples.receipts._states import ReceiptState

__all__ = ["output_bytes", "plan_bytes", "receipt_bytes"]

_SIZES = {"bin": 96, "idx": 40}
_N_ROWS = 4
_BEGAN = 1735689600.0  # Unix time of the first second of 2025
_OTHER_PLAN = "0123456789abcdef"


def output_bytes(value: ReceiptsLayout, index: int, kind: str) -> bytes:
    """Return what is in a shard's whole output: no two outputs of any plan have the same bytes.

    Args:
        value: The directory; what became of the shard does not matter.
        index: The shard.
        kind: ``"bin"``, which has 96 bytes, or ``"idx"``, which has 40.

    Raises:
        KeyError: Another kind.

    Example:
        >>> len(output_bytes(receipts_layout(), 0, "bin"))
        96
    """
    text = f"{kind} of shard {index} of plan {value.plan_hash}"
    return hashlib.shake_256(text.encode()).digest(_SIZES[kind])


def plan_bytes(value: ReceiptsLayout) -> bytes:
    """Return the text of ``plan.json``, with the fields of NVIDIA-NeMo/Nemotron's data_prep.

    It says too that each shard owes outputs of the kinds ``bin`` and ``idx``.

    Args:
        value: What became of its shards does not matter.

    Example:
        >>> import json
        >>> json.loads(plan_bytes(receipts_layout(n_shards=8)))["num_shards"]
        8
    """
    plan = {
        "version": "1.0",
        "created_at": "2025-01-01T00:00:00Z",
        "plan_hash": value.plan_hash,
        "dataset_name": value.dataset_name,
        "num_shards": value.n_shards,
        "source_fingerprint": f"sha256:{hashlib.sha256(value.plan_hash.encode()).hexdigest()}",
        "config_hash": hashlib.sha256(b"no settings").hexdigest()[:16],
        "determinism_constraints": {},
        "resolved_tokenizer": {"type": "none"},
        "file_assignments": [_assignment(index) for index in range(value.n_shards)],
        "pins": [],
        "kinds": ["bin", "idx"],
    }
    return json.dumps(plan, indent=1).encode()


def _assignment(index: int) -> dict[str, Any]:
    name = f"part-{index:06}.jsonl"
    source = {"path": name, "local_path": f"/data/corpus/{name}", "size": 1000, "mtime": _BEGAN}
    return {"shard_index": index, "files": [source], "total_bytes": 1000}


def receipt_bytes(value: ReceiptsLayout, index: int) -> bytes | None:
    """Return the text of a shard's receipt in its state; None where there is none.

    Example:
        >>> receipt_bytes(receipts_layout(blank=[0], absent=[1]), 0)
        b''
    """
    state = value.states[index]
    if state is ReceiptState.ABSENT:
        return None
    receipt = _completed(value, index)
    _CHANGES.get(state, _leave)(receipt)
    text = json.dumps(receipt).encode()
    return _SPELLINGS.get(state, bytes)(text)


def _completed(value: ReceiptsLayout, index: int) -> dict[str, Any]:
    return {
        "status": "completed",
        "plan_hash": value.plan_hash,
        "shard_index": index,
        "run_hash": value.run_hash,
        "dataset_name": value.dataset_name,
        "schema_version": 1,
        "completed_at": _BEGAN + index,
        "stats": {"num_sequences": _N_ROWS},
        "files": {
            "bin": _recorded(value.bin_name(index), output_bytes(value, index, "bin")),
            "idx": _recorded(value.idx_name(index), output_bytes(value, index, "idx")),
        },
    }


def _recorded(name: str, content: bytes) -> dict[str, Any]:
    checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return {"path": name, "bytes": len(content), "checksum": checksum}


def _leave(_receipt: dict[str, Any]) -> None:
    pass


def _start(receipt: dict[str, Any]) -> None:
    receipt |= {"status": "started", "started_at": receipt.pop("completed_at")}
    del receipt["stats"], receipt["files"]


def _fail(receipt: dict[str, Any]) -> None:
    # With the list of files, which nobody may take for a proof of anything.
    receipt |= {"status": "failed", "failed_at": receipt.pop("completed_at")}
    receipt |= {"error_type": "OSError", "error_message": "[Errno 28] No space left on device"}
    receipt["traceback"] = "Traceback (most recent call last):\n  ...\n"


def _swap_plan(receipt: dict[str, Any]) -> None:
    receipt["plan_hash"] = _OTHER_PLAN


def _swap_shard(receipt: dict[str, Any]) -> None:
    receipt["shard_index"] = receipt["shard_index"] - 1 if receipt["shard_index"] else 1


def _unlist(receipt: dict[str, Any]) -> None:
    del receipt["files"]


def _unname(receipt: dict[str, Any]) -> None:
    receipt["files"] = {}


def _unname_idx(receipt: dict[str, Any]) -> None:
    del receipt["files"]["idx"]


def _unname_bin(receipt: dict[str, Any]) -> None:
    del receipt["files"]["bin"]


def _empty(receipt: dict[str, Any]) -> None:
    receipt["stats"]["num_sequences"] = 0
    for file in receipt["files"].values():
        file |= {"bytes": 0, "checksum": "xxh64:empty"}


def _escape(receipt: dict[str, Any]) -> None:
    receipt["files"]["bin"]["path"] = "../" + receipt["files"]["bin"]["path"]


def _prove_nothing(receipt: dict[str, Any]) -> None:
    for file in receipt["files"].values():
        file["checksum"] = "xxh64:unknown"


_CHANGES: dict[ReceiptState, Callable[[dict[str, Any]], None]] = {
    ReceiptState.STARTED: _start,
    ReceiptState.FAILED: _fail,
    ReceiptState.FOREIGN: _swap_plan,
    ReceiptState.MISPLACED: _swap_shard,
    ReceiptState.UNLISTED: _unlist,
    ReceiptState.NAMELESS: _unname,
    ReceiptState.ONLY_BIN: _unname_idx,
    ReceiptState.ONLY_IDX: _unname_bin,
    ReceiptState.EMPTY_SHARD: _empty,
    ReceiptState.ESCAPING: _escape,
    ReceiptState.PLACEHOLDER: _prove_nothing,
}


def _no_json(text: bytes) -> bytes:
    return text.replace(b'"', b"'")  # as Python prints a dict


def _cut(text: bytes) -> bytes:
    return text[: len(text) // 2]


def _blank(_text: bytes) -> bytes:
    return b""


def _say_twice(text: bytes) -> bytes:
    return b'{"status": "failed", ' + text[1:]


_SPELLINGS: dict[ReceiptState, Callable[[bytes], bytes]] = {
    ReceiptState.CORRUPT: _no_json,
    ReceiptState.TORN: _cut,
    ReceiptState.BLANK: _blank,
    ReceiptState.TWICE: _say_twice,
}
