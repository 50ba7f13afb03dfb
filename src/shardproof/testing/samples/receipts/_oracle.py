"""Which shards a right reader of receipts must say are left to do, known from the layout alone.

This module imports nothing of shardproof: an oracle must not share the code that it judges.
"""

from shardproof.testing.samples.receipts._layout import ReceiptsLayout
from shardproof.testing.samples.receipts._states import ReceiptState

__all__ = ["expected_pending"]

_ALWAYS_DONE = {ReceiptState.COMPLETED, ReceiptState.EMPTY_SHARD}
_DONE = {
    "present": _ALWAYS_DONE
    | {ReceiptState.SHORT, ReceiptState.LONG, ReceiptState.FLIPPED, ReceiptState.PLACEHOLDER},
    "complete": _ALWAYS_DONE | {ReceiptState.FLIPPED, ReceiptState.PLACEHOLDER},
    "valid": _ALWAYS_DONE,
}


def expected_pending(value: ReceiptsLayout, level: str = "complete") -> tuple[int, ...]:
    """Return the shards that are not done, ascending.

    A shard is done when its receipt can be read, is of this plan and of this shard, says completed,
    names both outputs, and each is as the level demands. An empty shard owes no outputs of 0
    bytes. Whatever is unclear is not done: to do it again costs time, to skip it costs data.

    Unreadable outputs are expected to be unreadable: for root that takes `without_root_override`.

    Args:
        value: What was written.
        level: ``"present"``: each output is there, a regular file inside the plan directory, not
            empty, opens; ``"complete"``: and has the recorded size; ``"valid"``: and has the
            recorded digest, so that none is done of which nothing can be proven.

    Raises:
        ValueError: Another level.

    Example:
        >>> value = receipts_layout(n_shards=4, started=[1], short=[2], flipped=[3])
        >>> expected_pending(value, "present"), expected_pending(value)
        ((1,), (1, 2))
    """
    if level not in _DONE:
        raise ValueError(f"level: expected one of {', '.join(_DONE)}, found {level!r}")
    done = _DONE[level]
    return tuple(index for index, state in enumerate(value.states) if state not in done)
