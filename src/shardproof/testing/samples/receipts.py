"""Plan directories of data-prep runs: described, written, damaged, judged."""

import dataclasses
import enum
import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from shardproof.testing.samples._directories import MakeShardsDir, writer
from shardproof.testing.samples._keywords import one_of
from shardproof.testing.samples._layout import (
    Layout,
    SampleFormat,
    SampleOptions,
    index_of,
    layout_of,
)
from shardproof.testing.samples._oracle import KINDS, LEVELS
from shardproof.testing.samples._states import ShardState, apply_states

__all__ = [
    "FORMAT",
    "ReceiptState",
    "ReceiptsOptions",
    "expected_pending",
    "output_bytes",
    "receipt_bytes",
    "receipts_dir_maker",
]

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReceiptsOptions(SampleOptions):
    """What a plan directory is like: another seed makes another plan."""

    least_shards = 1
    dataset_name: ClassVar[str] = "corpus"

    @property
    def run_hash(self) -> str:
        """The run that the plan is part of: 16 hexadecimal digits."""
        return self._hash("run")

    @property
    def plan_hash(self) -> str:
        """The plan's name, which does not depend on what became of its shards."""
        return self._hash("plan")

    def _hash(self, what: str) -> str:
        text = f"{what} of {self.n_shards} shards, seed {self.seed}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def file_names(self) -> tuple[str, ...]:
        """The outputs of each shard, in order, relative to the plan directory."""
        both = ((self.bin_name(i), self.idx_name(i)) for i in range(self.n_shards))
        return tuple(name for names in both for name in names)

    @property
    def receipt_names(self) -> tuple[str, ...]:
        """Each shard's receipt, relative to the plan directory, in order."""
        return tuple(map(self.receipt_name, range(self.n_shards)))

    def shard_name(self, index: int) -> str:
        """Return the name of the output that states are about, the first."""
        return self.bin_name(index)

    def receipt_name(self, index: int) -> str:
        """Return the name of one receipt; `receipt_names` makes all of them, each time."""
        return f"receipts/shard_{index:06}.json"

    def bin_name(self, index: int) -> str:
        """Return the name of one first output."""
        return f"shard_{index:06}.bin"

    def idx_name(self, index: int) -> str:
        """Return the name of one second output."""
        return f"shard_{index:06}.idx"


def _read_bytes(layout: Layout, name: str) -> bytes:
    """Return what is in a whole file of the directory: in its plan, a receipt, or an output."""
    options: ReceiptsOptions = layout.options
    if name != "plan.json":
        index = index_of(layout, name, options.receipt_name, options.idx_name)
        if name == options.receipt_name(index):
            return json.dumps(_completed(layout, index)).encode()
        return output_bytes(layout, index, name.rpartition(".")[2])
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
            receipt["error_type"] = "OSError"
            receipt["error_message"] = "[Errno 28] No space left on device"
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


def _write(layout: Layout, root: Path) -> None:
    options: ReceiptsOptions = layout.options
    (root / "receipts").mkdir()
    (root / "plan.json").write_bytes(_read_bytes(layout, "plan.json"))
    for index, state in enumerate(layout.states):
        text = receipt_bytes(layout, index)
        if text is not None:
            (root / options.receipt_name(index)).write_bytes(text)
        if state in {ReceiptState.ABSENT, ReceiptState.EMPTY_SHARD}:
            continue
        first, second = root / options.bin_name(index), root / options.idx_name(index)
        first.write_bytes(output_bytes(layout, index, "bin"))
        second.write_bytes(output_bytes(layout, index, "idx"))
        if state in _WITHOUT_BIN:
            first.unlink()
        else:
            # The same harm has the same word as in any format; other words leave the output whole.
            apply_states([first], [state if state in _OF_FILES else ShardState.OK])
        if state in _WITHOUT_IDX:
            second.unlink()
        if state == ReceiptState.ESCAPING:
            with open(root.with_name(first.name), "xb") as outside:
                outside.write(output_bytes(layout, index, "bin"))


_OF_FILES: set[str] = {*ShardState}
_WITHOUT_BIN = {ReceiptState.ONLY_IDX, ReceiptState.MISSING_BIN, "missing", "escaping"}
_WITHOUT_IDX = {ReceiptState.ONLY_BIN, ReceiptState.MISSING_IDX, ReceiptState.MISSING}
_ALWAYS_DONE = {ReceiptState.OK, ReceiptState.EMPTY_SHARD}
_COMPLETE = _ALWAYS_DONE | {ReceiptState.FLIPPED, ReceiptState.PLACEHOLDER}
_DONE = {
    "present": _COMPLETE | {ReceiptState.TRUNCATED, ReceiptState.EXTENDED},
    "complete": _COMPLETE,
    "valid": _ALWAYS_DONE,
}


def expected_pending(layout: Layout, *, level: str = "complete") -> tuple[int, ...]:
    """Return the shards that are not done, ascending.

    A shard is done when its receipt can be read, is of this plan and of this shard, says completed,
    names both outputs, and each is as the level demands. An empty shard owes no outputs of 0
    bytes. Whatever is unclear is not done: to do it again costs time, to skip it costs data.

    Unreadable outputs are expected to be unreadable: for root that takes `without_root_override`.

    Args:
        layout: What was written.
        level: As for `expected_findings`, of each output and what is recorded of it; at ``"valid"``
            none is done of which nothing can be proven.

    Raises:
        ValueError: Another level.

    Example:
        >>> layout = Layout(4, format="receipts", started=[1], truncated=[2], flipped=[3])
        >>> expected_pending(layout, level="present"), expected_pending(layout)
        ((1,), (1, 2))
    """
    one_of("level", level, LEVELS)
    return tuple(at for at, state in enumerate(layout.states) if state not in _DONE[level])


_LYING: set[str] = {
    *("corrupt", "torn", "blank", "foreign", "misplaced", "twice"),
    *("unlisted", "nameless", "only_bin", "only_idx", "escaping"),
}
"""Those in which the receipt itself is a problem; one that only says started promises nothing."""


def _problems(layout: Layout, level: str, _digests: bool) -> Iterator[tuple[str, str]]:
    options: ReceiptsOptions = layout.options
    for index, state in enumerate(layout.states):
        if state in _LYING:
            yield "structure", options.receipt_name(index)
        if kind := KINDS[level].get(state):
            yield kind, options.bin_name(index)
        elif state == ReceiptState.MISSING_BIN:
            yield "missing", options.bin_name(index)
        elif state == ReceiptState.FLIPPED and level == "valid":
            yield "digest", options.bin_name(index)
        if state in {ReceiptState.MISSING_IDX, ReceiptState.MISSING}:
            yield "missing", options.idx_name(index)


FORMAT = SampleFormat(
    name="receipts",
    states=ReceiptState,
    options=ReceiptsOptions,
    manifest_names=lambda layout: ("plan.json", *layout.receipt_names),
    read_bytes=_read_bytes,
    write=_write,
    problems=_problems,
    unproven=lambda layout, level, _digests: (
        name(index)
        for index in (layout.indices(ReceiptState.PLACEHOLDER) if level == "valid" else ())
        for name in (layout.options.bin_name, layout.options.idx_name)
    ),
    folder=lambda layout: (
        f"runs/{layout.run_hash}/datasets/{layout.dataset_name}/{layout.plan_hash}"
    ),
)


def receipts_dir_maker(new_base: Callable[[], Path]) -> Iterator[MakeShardsDir]:
    """Yield what the fixture ``make_receipts_dir`` gives; restore the modes of all that it made."""
    make = functools.partial(layout_of, "make_receipts_dir", FORMAT, also=())
    with writer(new_base) as write:
        yield lambda n_shards=3, **keywords: write(
            make({"n_shards": n_shards, **keywords}, missing_outputs="missing")
        )
