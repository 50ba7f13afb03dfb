"""The rows of many shards, one after the other, with a place to come back to that outlives it."""

import contextlib
import copy
import hashlib
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from shardproof._base.arguments import checked, count
from shardproof._base.messages import quoted, shown, told
from shardproof._base.work import Closing, apart, close_at_exit
from shardproof.datasets.rows._lines import TextShard
from shardproof.datasets.rows._parquet import ParquetShard
from shardproof.datasets.rows._shard_lists import ParquetShards, TextShards
from shardproof.errors import ShardReadError
from shardproof.fetching.sources import RemoteFile
from shardproof.manifest import Count


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
    index, n_files = state.shard_index, len(files)
    row = state.row if index < n_files else 0
    place = RowPosition(min(index, n_files), row, max(state.row, state.total_rows))
    expected = RowsState.of(source, files, place)
    # The same files from another place are the same data, as far as the source tells of them.
    is_told = all(file.digest or file.identity or file.size is not None for file in files)
    wrong = [
        f"{name}: expected {quoted(one, 120)}, found {quoted(other, 120)}"
        for name, other in msgspec.structs.asdict(state).items()
        if (one := getattr(expected, name)) != other and (name != "source" or not is_told)
    ]
    if wrong:
        raise ValueError(
            f"this state is of other data than '{shown(source)}' (it says "
            f"{quoted(state.source)}): {'; '.join(wrong)}. Load the files and the revision that it "
            "was saved with, or start afresh"
        )
    return place


class ShardedRows(Closing):
    """Delivers the rows of shards in order, as dicts; a shard is there only while it is read.

    Every ``iter()`` begins behind the rows that are skipped; the first one after `load_state_dict`
    begins where the state is. A shard is fetched when it is needed, and those after it meanwhile.
    For threads: one iteration each. Among the workers of a ``torch.utils.data.DataLoader`` nothing
    is shared out: each delivers every row, so use one, or give each files of its own.

    `hf_load_dataset_sharded` and `load_dataset_from_spec` return one, and so do its methods
    `batches`, `shards` and `skip`.
    """

    def __init__(self, shards: ParquetShards | TextShards, skip: int = 0) -> None:
        self._shards = shards
        self._delivers: Literal["rows", "batches", "shards"] = "rows"
        self._batch_size: int | None = None
        self._begin = self._behind(count("skip", skip))
        self._resume = self._place = self._begin
        self._running: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()

    @property
    def data_files(self) -> list[str]:
        """The names of all files, in order."""
        return [file.name for file in self._shards.files]

    def __iter__(self) -> Iterator[Any]:
        self._place, self._resume = self._resume, self._begin
        run = self._run(self._place)
        self._running.add(run)
        close_at_exit(run)
        return run

    def _run(self, place: RowPosition) -> Generator[Any, None, None]:
        if place.shard >= len(self._shards.files):
            return
        with contextlib.closing(self._shards.paths(place.shard)) as paths:
            for path in paths:
                with contextlib.closing(self._opened(path, place.shard)) as shard:
                    end = yield from self._of_shard(shard, place, path)
                if end.shard == place.shard:  # whose end was not known
                    end = RowPosition(end.shard + 1, 0, end.total)
                place = self._place = end

    def _opened(self, path: Path, index: int) -> ParquetShard | TextShard:
        return apart(lambda _: self._shards.open(path, index))

    # A generator of its own: what it holds of a shard ends with it, before the next one is read.
    def _of_shard(
        self, shard: ParquetShard | TextShard, place: RowPosition, path: Path
    ) -> Generator[Any, None, RowPosition]:
        """Yield what is left of a shard, and return the place behind it."""
        n_rows = shard.n_rows
        if n_rows is not None and place.row > n_rows:
            problem = (
                f"expected {place.row} rows or more, as many as were read before, found {n_rows}: "
                "it is another file by now"
            )
            raise ShardReadError(problem, path=path)
        for items in self._items(shard, place.row):
            for item in items:
                n = 1 if self._delivers == "rows" else len(item)
                self._place = place = place.after(n, n_rows)
                yield item
        return place

    def _items(self, shard: ParquetShard | TextShard, start: int) -> Iterator[Iterable[Any]]:
        if self._delivers == "rows":
            return shard.rows(start)
        if self._delivers == "batches":
            return iter([shard.batches(start, self._batch_size)])
        # In memory: Dataset.from_parquet would write a copy, and the shard itself is soon gone.
        return iter([[_need_datasets().Dataset(shard.table(start))]])

    @checked
    def batches(self, size: int | None = None) -> Self:
        """Return the same data, delivered as `pyarrow.RecordBatch`.

        Args:
            size: Rows of a batch, of which there are fewer where a row group ends; None for about
                4 MiB.

        Raises:
            ValueError: Below 1.
        """
        size = None if size is None else count("size", size, 1)
        return self._copy(_delivers="batches", _batch_size=size)

    def shards(self) -> Self:
        """Return the same data, delivered as one `datasets.Dataset` for each shard, in memory.

        Raises:
            ImportError: The package datasets is not installed; the text says how to.
        """
        _need_datasets()
        return self._copy(_delivers="shards")

    @checked
    def skip(self, n: int) -> Self:
        """Return the same data without ``n`` more rows at its beginning; nothing of them is read.

        Raises:
            ValueError: Below 0, or there are not so many rows.
        """
        begin = self._behind(self._begin.total + count("n", n))
        return self._copy(_begin=begin, _resume=begin)

    def _behind(self, n_rows: int) -> RowPosition:
        plan = self._shards.plan(n_rows)
        n_done = len(self._shards.files) - len(plan.data_files)
        return RowPosition(n_done, plan.in_shard_offset, n_rows)

    def _copy(self, **changes: object) -> Self:
        other = copy.copy(self)
        vars(other).update(changes)
        other._place = other._resume
        return other

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is that delivered last: small, and plain JSON.

        It is exact after every row, in the middle of a batch too.
        """
        place = RowsState.of(self._shards.url, self._shards.files, self._place)
        state: dict[str, Any] = msgspec.to_builtins(place)  # a source may name files by an enum
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration at what `state_dict` returned; nothing before it is fetched.

        Raises:
            ValueError: It is the state of other data, or none.
        """
        self._resume = self._place = place_in(self._shards.url, self._shards.files, state)

    def close(self) -> None:
        """End every iteration that is under way, with its downloads."""
        for run in list(self._running):
            run.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_running"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._running = weakref.WeakSet()


def _need_datasets() -> Any:
    try:
        import datasets  # noqa: PLC0415 - where a user has it, and asks for it
    except ImportError as error:
        raise ImportError("shards() needs the package datasets: pip install datasets") from error
    return datasets
