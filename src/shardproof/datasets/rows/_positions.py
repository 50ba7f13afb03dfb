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
    """Return where the iteration over the files of a source was whose state was saved."""
    try:
        state = msgspec.convert(saved, RowsState)
    except msgspec.ValidationError as error:
        raise ValueError(f"expected what state_dict() returned: {told(error)}") from None
    place = RowPosition(state.shard_index, state.row, state.total_rows)
    expected = RowsState.of(source, files, place)
    names = ["n_files", "files", "shard"]
    # The same files from another place are the same data, as far as the source tells of them.
    if not all(file.digest or file.identity or file.size is not None for file in files):
        names.append("source")
    pairs = {name: (getattr(expected, name), getattr(state, name)) for name in names}
    pairs["shard_index"] = (min(place.shard, len(files)), place.shard)
    pairs["row"] = (0 if place.shard >= len(files) else place.row, place.row)
    pairs["total_rows"] = (max(place.row, place.total), place.total)
    wrong = [
        f"{name}: expected {quoted(one, 120)}, found {quoted(other, 120)}"
        for name, (one, other) in pairs.items()
        if one != other
    ]
    if wrong:
        raise ValueError(
            f"this state is of other data than '{shown(source)}' (it says "
            f"{quoted(state.source)}): {'; '.join(wrong)}. Load the files and the revision that it "
            "was saved with, or start afresh"
        )
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
    """Return where to go on after so many rows; ``counts`` are asked for only as far as needed."""
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
