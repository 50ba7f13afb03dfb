"""The one writer of plan directories.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import os
from collections.abc import Callable
from pathlib import Path

from shardproof.testing.samples.receipts._content import output_bytes, plan_bytes, receipt_bytes
from shardproof.testing.samples.receipts._layout import ReceiptsLayout
from shardproof.testing.samples.receipts._states import ReceiptState
from shardproof.testing.samples.saev._states import ShardState, apply_states

__all__ = ["write_receipts"]


def write_receipts(value: ReceiptsLayout, base: str | os.PathLike[str]) -> Path:
    """Write the plan directory of a data-prep run, and return its path.

    Args:
        value: What to write.
        base: The output directory, below which ``runs/<run>/datasets/corpus/<plan>`` is made; made
            itself if need be.

    Returns:
        The plan directory, absolute.

    Raises:
        FileExistsError: This plan has a directory already.
        OSError: It could not be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     path = write_receipts(receipts_layout(n_shards=2, absent=[1]), base)
        ...     sorted(os.listdir(path))
        ['plan.json', 'receipts', 'shard_000000.bin', 'shard_000000.idx']
    """
    root = Path(os.path.abspath(base), value.directory)
    (root / "receipts").mkdir(parents=True)
    (root / "plan.json").write_bytes(plan_bytes(value))
    for index, state in enumerate(value.states):
        _write_receipt(value, root, index)
        if state not in {ReceiptState.ABSENT, ReceiptState.EMPTY_SHARD}:
            _write_outputs(value, root, index)
            _CHANGES.get(state, _leave)(root / value.bin_name(index))
    return root


def _write_receipt(value: ReceiptsLayout, root: Path, index: int) -> None:
    text = receipt_bytes(value, index)
    if text is not None:
        (root / value.receipt_name(index)).write_bytes(text)


def _write_outputs(value: ReceiptsLayout, root: Path, index: int) -> None:
    (root / value.bin_name(index)).write_bytes(output_bytes(value, index, "bin"))
    (root / value.idx_name(index)).write_bytes(output_bytes(value, index, "idx"))


def _leave(_path: Path) -> None:
    pass


def _remove_idx(path: Path) -> None:
    path.with_suffix(".idx").unlink()


def _remove_both(path: Path) -> None:
    path.unlink()
    _remove_idx(path)


def _move_up(path: Path) -> None:
    os.rename(path, path.parent.with_name(path.name))


def _as(state: ShardState) -> Callable[[Path], None]:
    """What becomes of an output is what becomes of any shard."""
    return lambda path: apply_states([path], [state])


_CHANGES: dict[ReceiptState, Callable[[Path], None]] = {
    ReceiptState.ONLY_BIN: _remove_idx,
    ReceiptState.ONLY_IDX: _as(ShardState.MISSING),
    ReceiptState.MISSING_BIN: _as(ShardState.MISSING),
    ReceiptState.MISSING_IDX: _remove_idx,
    ReceiptState.MISSING_BOTH: _remove_both,
    ReceiptState.EMPTIED: _as(ShardState.EMPTY),
    ReceiptState.SHORT: _as(ShardState.TRUNCATED),
    ReceiptState.LONG: _as(ShardState.EXTENDED),
    ReceiptState.FLIPPED: _as(ShardState.FLIPPED),
    ReceiptState.DIRECTORY: _as(ShardState.DIRECTORY),
    ReceiptState.UNREADABLE: _as(ShardState.UNREADABLE),
    ReceiptState.ESCAPING: _move_up,
}
