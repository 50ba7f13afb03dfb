"""Where to go on after so many rows: which files are left, and how much of the first is done."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["ResumePlan", "plan_of", "shard_label"]


class ResumePlan(NamedTuple):
    """Where to go on.

    Attributes:
        data_files: The files that are left, in order; none if every row is done.
        in_shard_offset: How many rows of the first of them are done.
        shard_label: For a log: ``data/train-00001.parquet (2/5) row 17``.
    """

    data_files: tuple[str, ...]
    in_shard_offset: int
    shard_label: str


def plan_of(names: Sequence[str], counts: Iterable[int], row_offset: int) -> ResumePlan:
    """Return where to go on after ``row_offset`` rows.

    Args:
        names: All files, in order.
        counts: How many rows each has; taken only as far as it must be known.
        row_offset: How many rows are done.

    Raises:
        ValueError: There are not so many rows.

    Example:
        >>> plan_of(["a.parquet", "b.parquet"], [10, 20], 12).shard_label
        'b.parquet (2/2) row 2'
    """
    index, left = 0, row_offset
    if row_offset:
        for count in counts:
            if left < count:
                break
            index, left = index + 1, left - count
        else:
            if left:
                raise ValueError(
                    f"row_offset: expected at most {row_offset - left}, the rows of all "
                    f"{len(names)} files, found {row_offset}: it was counted over other data"
                )
    return ResumePlan(tuple(names[index:]), left, shard_label(names, index, left))


def shard_label(names: Sequence[str], index: int, row: int) -> str:
    """Return how a log calls a place."""
    if index == len(names):
        return f"behind the last of {len(names)} shards"
    return f"{names[index]} ({index + 1}/{len(names)}) row {row}"
