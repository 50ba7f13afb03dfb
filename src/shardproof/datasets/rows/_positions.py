"""Where an iteration over shards is, and where to go on: as data that outlives the process."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from shardproof._base.messages import quoted, shown, told
from shardproof.fetching.sources import RemoteFile

_MAX = 2**53

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]


class RowPosition(NamedTuple):
    """What was delivered until now: so many shards, rows of the next one, and rows in all."""

    shard: int
    row: int
    total: int

    def after(self, n: int, n_rows: int | None) -> "RowPosition":
        """Return the place ``n`` rows on, in a shard of ``n_rows``."""
        row, total = self.row + n, self.total + n
        if row == n_rows:
            return RowPosition(self.shard + 1, 0, total)
        return RowPosition(self.shard, row, total)


class RowsState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `state_dict` returns."""

    source: str  # with the revision
    n_files: Count
    files: str  # a digest of their names and identities
    shard_index: Count
    shard: str | None  # the name of the next; None at the end
    row: Count
    total_rows: Count  # for ``skip``, if the state is not wanted
    version: Literal[1] = 1

    @classmethod
    def of(cls, source: str, files: Sequence[RemoteFile], place: RowPosition) -> "RowsState":
        """Return the state of an iteration over the files of a source that is at ``place``."""
        contents = [[file.name, file.digest or file.identity or file.size] for file in files]
        return cls(
            source=source,
            n_files=len(files),
            files=f"sha256:{hashlib.sha256(msgspec.json.encode(contents)).hexdigest()}",
            shard_index=place.shard,
            shard=None if place.shard >= len(files) else files[place.shard].name,
            row=place.row,
            total_rows=place.total,
        )


def place_in(source: str, files: Sequence[RemoteFile], saved: Mapping[str, Any]) -> RowPosition:
    """Return where the iteration over the files of a source was whose state was saved.

    The same files from another place are the same data: a mirror, or a later revision that changed
    none of them. Where a source states too little of a file, it must be the same source.
    """
    try:
        state = msgspec.convert(saved, RowsState)
    except msgspec.ValidationError as error:
        raise ValueError(f"expected what state_dict() returned: {told(error)}") from None
    place = RowPosition(state.shard_index, state.row, state.total_rows)
    expected = RowsState.of(source, files, place)
    names = ["n_files", "files", "shard"]
    if not all(file.digest or file.identity or file.size is not None for file in files):
        names.append("source")
    pairs = {name: (getattr(expected, name), getattr(state, name)) for name in names}
    wrong = [
        f"{name}: expected {quoted(one, 120)}, found {quoted(other, 120)}"
        for name, (one, other) in pairs.items()
        if one != other
    ]
    if place.shard >= len(files) and (place.shard > len(files) or place.row):
        wrong.append(f"shard_index: expected at most {len(files)}, found {place.shard}")
    if place.row > place.total:
        wrong.append(f"total_rows: expected {place.row} or more, found {place.total}")
    if wrong:
        problem = (
            f"this state is of other data than '{shown(source)}' (it says "
            f"{quoted(state.source)}): {'; '.join(wrong)}. Load the files and the revision that it "
            "was saved with, or begin anew"
        )
        raise ValueError(problem)
    return place


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
    """Return where to go on after ``row_offset`` rows of all files, in order.

    How many rows each has is taken from ``counts``, only as far as it must be known.

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
    label = f"behind the last of {len(names)} shards"
    if index < len(names):
        label = f"{names[index]} ({index + 1}/{len(names)}) row {left}"
    return ResumePlan(tuple(names[index:]), left, label)
