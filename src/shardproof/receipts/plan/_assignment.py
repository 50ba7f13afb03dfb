"""Which shard gets which files: always the same, and about as many bytes for each."""

import heapq
from collections.abc import Sequence
from fractions import Fraction

import msgspec

from shardproof.receipts.plan._input_files import InputFile

__all__ = ["METHOD", "Assignment", "assign"]

METHOD = "size-balanced-1"
"""Stands in every plan's hash: another way to deal files out makes another plan."""


class Assignment(msgspec.Struct, frozen=True):
    """What one shard is made of.

    Attributes:
        shard_index: The shard.
        files: Its files in the order in which they are read: by path.
        total_bytes: The sum of their sizes; where rows are dealt out, their part of it.
    """

    shard_index: int
    files: tuple[InputFile, ...]
    total_bytes: int


def assign(files: Sequence[InputFile], n_shards: int) -> tuple[Assignment, ...]:
    """Deal files out to shards; each file, or each row, to exactly one.

    The largest file goes first, to the shard that has least so far (Graham, "Bounds on
    multiprocessing timing anomalies", 1969: at most 4/3 of the best). Where sizes aren't known,
    in turns. Where there are fewer files than shards, each file's rows are dealt out to shards of
    its own, most of them for the largest file.
    """
    ordered = sorted(files, key=lambda file: (-file.size, file.path))
    deal = _dealt_by_rows if len(ordered) < n_shards else _dealt_by_size
    return tuple(
        Assignment(index, tuple(sorted(shard, key=lambda file: file.path)), n_bytes)
        for index, (shard, n_bytes) in enumerate(deal(ordered, n_shards))
    )


_Dealt = list[tuple[list[InputFile], int]]


def _dealt_by_size(ordered: Sequence[InputFile], n_shards: int) -> _Dealt:
    shards: list[list[InputFile]] = [[] for _ in range(n_shards)]
    # How many files a shard has decides where sizes don't: that is in turns, if none is known.
    heap = [(0, 0, index) for index in range(n_shards)]
    for file in ordered:
        n_bytes, n_files, index = heap[0]
        shards[index].append(file)
        heapq.heapreplace(heap, (n_bytes + file.size, n_files + 1, index))
    sizes = {index: n_bytes for n_bytes, _, index in heap}
    return [(shard, sizes[index]) for index, shard in enumerate(shards)]


def _dealt_by_rows(ordered: Sequence[InputFile], n_shards: int) -> _Dealt:
    """Give each file shards of its own; the file with the largest parts gets the next one."""
    shares = [1] * len(ordered)
    heap = [(Fraction(-file.size), 1, place) for place, file in enumerate(ordered)]
    heapq.heapify(heap)
    for _ in range(n_shards - len(ordered)):
        place = heap[0][2]
        shares[place] += 1
        part = Fraction(-ordered[place].size, shares[place])
        heapq.heapreplace(heap, (part, shares[place], place))
    dealt: _Dealt = []
    for file, n_parts in zip(ordered, shares, strict=True):
        if n_parts == 1:
            dealt.append(([file], file.size))
            continue
        for remainder in range(n_parts):
            rows = msgspec.structs.replace(file, row_modulus=n_parts, row_remainder=remainder)
            dealt.append(([rows], file.size // n_parts + (remainder < file.size % n_parts)))
    return dealt
