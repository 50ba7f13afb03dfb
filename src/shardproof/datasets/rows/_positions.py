"""Where an iteration over shards is, and where to go on: as data that outlives the process."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from shardproof._base.messages import quoted, shown, told
from shardproof.fetching.sources import RemoteFile

__all__ = ["Data", "ResumePlan", "RowPosition", "RowsState", "place_in", "plan_of", "read_state"]

_MAX = 2**53

Count = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]


class RowPosition(NamedTuple):
    """What was delivered until now.

    Attributes:
        shard: So many shards.
        row: And so many rows of the next.
        total: So many rows in all.
    """

    shard: int
    row: int
    total: int

    def after(self, n: int, n_rows: int | None) -> "RowPosition":
        """Return the place ``n`` rows on, in a shard of ``n_rows``."""
        row = self.row + n
        if row == n_rows:
            return RowPosition(self.shard + 1, 0, self.total + n)
        return RowPosition(self.shard, row, self.total + n)


class Data(NamedTuple):
    """What is delivered: two of these are equal if their rows are.

    Attributes:
        source: Where it comes from.
        files: The files, in order.
    """

    source: str
    files: Sequence[RemoteFile]

    @property
    def digest(self) -> str:
        """``"sha256:<hex>"`` of the names, and of what tells the contents."""
        told = [[file.name, file.digest or file.identity or file.size] for file in self.files]
        return f"sha256:{hashlib.sha256(msgspec.json.encode(told)).hexdigest()}"

    @property
    def is_identified(self) -> bool:
        """Whether the source tells of each file which bytes it has, or how many."""
        return all(file.digest or file.identity or file.size is not None for file in self.files)


class RowsState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What `state_dict` returns.

    Attributes:
        source: Where the data comes from, with the revision.
        n_files: How many files it has.
        files: Digest of their names and identities.
        shard_index: How many of them are done.
        shard: The name of the next; None at the end.
        row: How many rows of that one are done.
        total_rows: How many rows are done in all; for ``skip``, if the state is not wanted.
        version: Of this layout.
    """

    source: str
    n_files: Count
    files: str
    shard_index: Count
    shard: str | None
    row: Count
    total_rows: Count
    version: Literal[1] = 1

    @classmethod
    def of(cls, data: Data, place: RowPosition) -> "RowsState":
        """Return the state of an iteration that is at ``place``."""
        at_end = place.shard >= len(data.files)
        return cls(
            source=data.source,
            n_files=len(data.files),
            files=data.digest,
            shard_index=place.shard,
            shard=None if at_end else data.files[place.shard].name,
            row=place.row,
            total_rows=place.total,
        )


def read_state(state: Mapping[str, Any]) -> RowsState:
    """Return a state that was saved.

    Raises:
        ValueError: It is none; the text names the field.
    """
    try:
        return msgspec.convert(state, RowsState)
    except msgspec.ValidationError as error:
        raise ValueError(f"expected what state_dict() returned: {told(error)}") from None


def place_in(data: Data, state: RowsState) -> RowPosition:
    """Return where a state is.

    The same files from another place are the same data: a mirror, or a later revision that changed
    none of them. Where a source doesn't tell so much of a file, it must be the same source.

    Raises:
        ValueError: It is the state of other data, or contradicts itself.
    """
    place = RowPosition(state.shard_index, state.row, state.total_rows)
    expected = RowsState.of(data, place)
    names = ["n_files", "files", "shard", *(() if data.is_identified else ("source",))]
    wrong = [
        f"{name}: expected {_shown(getattr(expected, name))}, found {_shown(getattr(state, name))}"
        for name in names
        if getattr(expected, name) != getattr(state, name)
    ]
    if place.shard >= len(data.files) and (place.shard > len(data.files) or place.row):
        wrong.append(f"shard_index: expected at most {len(data.files)}, found {place.shard}")
    if place.row > place.total:
        wrong.append(f"total_rows: expected {place.row} or more, found {place.total}")
    if wrong:
        problem = (
            f"this state is of other data than '{shown(data.source)}' (it says "
            f"{quoted(state.source)}): {'; '.join(wrong)}. Load the files and the revision that it "
            "was saved with, or begin anew"
        )
        raise ValueError(problem)
    return place


def _shown(value: object) -> str:
    return quoted(value, 120) if isinstance(value, str) else repr(value)


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
    """Return where to go on after ``row_offset`` rows of the named files.

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
    label = f"behind the last of {len(names)} shards"
    if index < len(names):
        label = f"{names[index]} ({index + 1}/{len(names)}) row {left}"
    return ResumePlan(tuple(names[index:]), left, label)
