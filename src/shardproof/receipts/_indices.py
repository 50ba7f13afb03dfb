"""Shard numbers as SLURM writes them: ``3,7,12-40``."""

from collections.abc import Iterator, Sequence

__all__ = ["as_ranges"]


def as_ranges(indices: Sequence[int]) -> str:
    """Return ascending numbers as ``sbatch --array`` takes them (sbatch(1)).

    Example:
        >>> as_ranges([3, 7, 12, 13, 14])
        '3,7,12-14'
    """
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in _runs(indices)
    )


def _runs(indices: Sequence[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for place in range(1, len(indices) + 1):
        if place == len(indices) or indices[place] != indices[place - 1] + 1:
            yield indices[start], indices[place - 1]
            start = place
