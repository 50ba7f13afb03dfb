"""The bytes of a shard as its state says.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import itertools
import struct
from collections.abc import Callable

from shardproof.testing.samples.checkpoint._content import (
    checkpoint_shard_bytes,
    header_size,
    offsets,
    shard_bytes_at,
)
from shardproof.testing.samples.checkpoint._layout import CheckpointLayout
from shardproof.testing.samples.checkpoint._states import CheckpointShardState

__all__ = ["harmed_shard"]

_NEAR = 1000


def harmed_shard(value: CheckpointLayout, rank: int) -> bytes:
    """Return the bytes of a shard, as far as its state is one of bytes and not one of the file."""
    whole = checkpoint_shard_bytes(value, rank)
    return _CHANGES.get(value.states[rank], _leave)(whole, value, rank)


_Change = Callable[[bytes, CheckpointLayout, int], bytes]


def _leave(whole: bytes, _value: CheckpointLayout, _rank: int) -> bytes:
    return whole


def _flip(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
    return _flipped(whole, _middle_of_last(value, rank))


def _flip_header(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
    return _flipped(whole, header_size(value, rank) // 2)


def _flip_padding(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
    return _flipped(whole, header_size(value, rank))


def _zero_tail(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
    return whole[: _middle_of_last(value, rank)].ljust(len(whole), b"\0")


def _save_at_another_step(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
    """The last step before with other bytes, else the next: a few may be the same by chance."""
    before = range(value.step - 1, max(-1, value.step - _NEAR), -1)
    steps = itertools.chain(before, range(value.step + 1, value.step + _NEAR))
    others = (shard_bytes_at(value, rank, step) for step in steps)
    return next(other for other in others if other != whole)


def _flipped(whole: bytes, place: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]


def _middle_of_last(value: CheckpointLayout, rank: int) -> int:
    """The middle byte of the last tensor that has any."""
    placed = zip(value.tensors[rank], offsets(value, rank), strict=True)
    *_, (tensor, offset) = [each for each in placed if each[0].size]
    return offset + tensor.size // 2


def _say(form: str, number: int, *, after_checksum: bool, at: int) -> _Change:
    """One field of the header says another number."""

    def change(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
        start = at + (header_size(value, rank) - 24 if after_checksum else 0)
        field = struct.pack(form, number)
        return whole[:start] + field + whole[start + len(field) :]

    return change


def _next_rank(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
    return _say("<i", rank + 1, after_checksum=False, at=4)(whole, value, rank)


def _count_more(whole: bytes, value: CheckpointLayout, rank: int) -> bytes:
    n_tensors = len(value.tensors[rank])
    return _say("<i", n_tensors + 1, after_checksum=True, at=12)(whole, value, rank)


_CHANGES: dict[CheckpointShardState, _Change] = {
    CheckpointShardState.FLIPPED: _flip,
    CheckpointShardState.FLIPPED_HEADER: _flip_header,
    CheckpointShardState.FLIPPED_PADDING: _flip_padding,
    CheckpointShardState.ZERO_TAIL: _zero_tail,
    CheckpointShardState.STALE: _save_at_another_step,
    CheckpointShardState.WRONG_MAGIC: _say(">I", 0x53484152, after_checksum=False, at=0),
    CheckpointShardState.WRONG_RANK: _next_rank,
    CheckpointShardState.NEGATIVE_CHECKSUM: _say("<i", -1, after_checksum=False, at=8),
    CheckpointShardState.HUGE_CHECKSUM: _say("<i", 2**31 - 1, after_checksum=False, at=8),
    CheckpointShardState.WRONG_COUNT: _count_more,
    CheckpointShardState.NEGATIVE_DATA: _say("<q", -1, after_checksum=True, at=16),
    CheckpointShardState.HUGE_DATA: _say("<q", 2**63 - 1, after_checksum=True, at=16),
}
