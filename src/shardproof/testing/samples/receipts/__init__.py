"""Plan directories of data-prep runs: described, written, damaged, judged."""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from shardproof.testing.samples._directories import MakeShardsDir, writer
from shardproof.testing.samples._keywords import one_of
from shardproof.testing.samples._layout import Layout, SampleFormat, SampleOptions, layout_of
from shardproof.testing.samples._oracle import KINDS, LEVELS
from shardproof.testing.samples._states import ShardState, apply_states
from shardproof.testing.samples.receipts._content import (
    ReceiptState,
    output_bytes,
    receipt_bytes,
    whole_bytes,
)

__all__ = [
    "FORMAT",
    "ReceiptState",
    "ReceiptsOptions",
    "expected_pending",
    "output_bytes",
    "receipt_bytes",
    "receipts_dir_maker",
]


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
    def directory(self) -> PurePosixPath:
        """The plan directory, relative to the output directory."""
        return PurePosixPath("runs", self.run_hash, "datasets", self.dataset_name, self.plan_hash)

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


def _write(layout: Layout, to: Path) -> Path:
    options: ReceiptsOptions = layout.options
    root = to / options.directory
    (root / "receipts").mkdir(parents=True)
    (root / "plan.json").write_bytes(whole_bytes(layout, "plan.json"))
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
            os.rename(first, first.parent.with_name(first.name))
    return root


_OF_FILES: set[str] = {*ShardState}
_WITHOUT_BIN = {ReceiptState.ONLY_IDX, ReceiptState.MISSING_BIN, ReceiptState.MISSING}
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
        level: ``"present"``: each output is there, a regular file inside the plan directory, not
            empty, opens; ``"complete"``: and has the recorded size; ``"valid"``: and has the
            recorded digest, so that none is done of which nothing can be proven.

    Raises:
        ValueError: Another level.

    Example:
        >>> layout = Layout(4, format="receipts", started=[1], truncated=[2], flipped=[3])
        >>> expected_pending(layout, level="present"), expected_pending(layout)
        ((1,), (1, 2))
    """
    one_of("level", level, LEVELS)
    done = _DONE[level]
    return tuple(index for index, state in enumerate(layout.states) if state not in done)


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
    read_bytes=whole_bytes,
    write=_write,
    problems=_problems,
    unproven=lambda layout, level, _digests: (
        name(index)
        for index in (layout.indices(ReceiptState.PLACEHOLDER) if level == "valid" else ())
        for name in (layout.options.bin_name, layout.options.idx_name)
    ),
)


@contextlib.contextmanager
def receipts_dir_maker(new_base: Callable[[], Path]) -> Iterator[MakeShardsDir]:
    """Yield what the fixture ``make_receipts_dir`` gives; restore the modes of all that it made."""
    with writer(new_base) as write:

        def make(n_shards: int = 3, **keywords: Any) -> Path:
            said = {"n_shards": n_shards, **keywords}
            aliases = {"missing_outputs": "missing"}
            return write(layout_of("make_receipts_dir", FORMAT, said, also=(), **aliases))

        yield make
