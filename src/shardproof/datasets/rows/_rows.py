"""The rows of many shards, one shard after the other, with a place to come back to."""

import contextlib
import copy
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import msgspec

from shardproof._base.arguments import as_int, checked
from shardproof._base.at_exit import close_at_exit
from shardproof._base.work import apart
from shardproof.datasets.rows._rows_state import Data, RowPosition, RowsState, place_in, read_state
from shardproof.errors import ShardReadError
from shardproof.fetching.sources import RemoteFile

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Kind", "RowShard", "RowShards", "ShardedRows", "refuse_count"]

Kind = Literal["rows", "batches", "dataset"]
"""What is delivered: dicts, `pyarrow.RecordBatch`, or a `datasets.Dataset` for each shard."""


class RowShard(Protocol):
    """One shard that is open."""

    @property
    def n_rows(self) -> int | None:
        """How many rows it has; None where that is not known before all are read."""

    def rows(self, start: int) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows from ``start`` on."""

    def batches(self, start: int, size: int | None = None) -> Iterator["pyarrow.RecordBatch"]:
        """Yield the rows from ``start`` on."""

    def table(self, start: int) -> "pyarrow.Table":
        """Return the rows from ``start`` on."""

    def close(self) -> None:
        """Close the file."""


class RowShards(Protocol):
    """Shards in order: where they are, and how one is opened."""

    @property
    def url(self) -> str:
        """Where they come from."""

    @property
    def files(self) -> Sequence[RemoteFile]:
        """What they are."""

    def paths(self, first: int) -> Generator[Path, None, None]:
        """Yield the path of each shard from ``first`` on; it is there until the next is asked."""

    def open(self, path: Path, index: int) -> RowShard:
        """Open a shard, of which the number is given too."""

    def place_of(self, n_rows: int) -> RowPosition:
        """Return where so many rows are done."""


class ShardedRows:
    """Delivers the rows of shards in order, each shard being there only while it is read.

    Every ``iter()`` begins behind the rows that are skipped; the first one after `load_state_dict`
    begins where the state is. A shard is fetched when it is needed, and those after it meanwhile.
    For threads: one iteration each. Among the workers of a ``torch.utils.data.DataLoader`` nothing
    is shared out: each delivers every row, so use one, or give each files of its own.

    Args:
        shards: What to read.
        as_: What to deliver.
        batch_size: Rows of a batch, of which there are fewer where a row group ends; None for about
            4 MiB. For ``"batches"`` only.
        skip: How many rows at the beginning are not delivered.

    Raises:
        ValueError: A number out of range; fewer rows than are to be skipped.
    """

    def __init__(
        self, shards: RowShards, as_: Kind = "rows", batch_size: int | None = None, skip: int = 0
    ) -> None:
        refuse_count("skip", skip, least=0)
        if batch_size is not None:
            refuse_count("batch_size", batch_size, least=1)
        if as_ == "dataset":
            _need_datasets()
        self._shards, self._as, self._batch_size = shards, as_, batch_size
        self._data = Data(shards.url, shards.files)
        self._begin = shards.place_of(skip)
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
                    _refuse_place(shard, place, path)
                    end = yield from self._of_shard(shard, place)
                if end.shard == place.shard:  # nobody knew where it ends
                    end = RowPosition(end.shard + 1, 0, end.total)
                place = self._place = end

    def _opened(self, path: Path, index: int) -> RowShard:
        return apart(lambda _: self._shards.open(path, index))

    def _of_shard(self, shard: RowShard, place: RowPosition) -> Generator[Any, None, RowPosition]:
        """Yield what is left of a shard, and return the place behind it."""
        n_rows, are_rows = shard.n_rows, self._as == "rows"
        for items in self._items(shard, place.row):
            for item in items:
                place = place.after(1 if are_rows else len(item), n_rows)
                self._place = place
                yield item
        return place

    def _items(self, shard: RowShard, start: int) -> Iterator[Iterable[Any]]:
        if self._as == "rows":
            return shard.rows(start)
        if self._as == "batches":
            return iter([shard.batches(start, self._batch_size)])
        return iter([[_dataset_of(shard.table(start))]])

    @checked
    def skip(self, n: int) -> Self:
        """Return the same data without ``n`` more rows at its beginning; nothing of them is read.

        Args:
            n: 0 or more.

        Raises:
            ValueError: Below 0, or there are not so many rows.
        """
        refuse_count("n", n, least=0)
        other = copy.copy(self)
        other._begin = self._shards.place_of(self._begin.total + n)
        other._resume = other._place = other._begin
        other._running = weakref.WeakSet()
        return other

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is that delivered last: small, and plain JSON.

        It is exact after every row, in the middle of a batch too.
        """
        state: dict[str, Any] = msgspec.to_builtins(RowsState.of(self._data, self._place))
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin behind what was delivered; nothing before it is fetched.

        Args:
            state: What `state_dict` returned.

        Raises:
            ValueError: It is the state of other data, or none.
        """
        self._resume = self._place = place_in(self._data, read_state(state))

    def close(self) -> None:
        """End every iteration that is under way, with its downloads."""
        for run in list(self._running):
            run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_running"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._running = weakref.WeakSet()


def _refuse_place(shard: RowShard, place: RowPosition, path: Path) -> None:
    if shard.n_rows is not None and place.row > shard.n_rows:
        problem = (
            f"expected {place.row} rows or more, as many as were read before, found "
            f"{shard.n_rows}: it is another file by now"
        )
        raise ShardReadError(problem, path=path)


def _dataset_of(table: "pyarrow.Table") -> Any:
    # In memory: Dataset.from_parquet would write a copy, and a file that is removed is soon gone.
    return _need_datasets().Dataset(table)


def _need_datasets() -> Any:
    try:
        import datasets  # noqa: PLC0415 - where a user has it, and asks for it
    except ImportError as error:
        problem = 'as_="dataset" needs the package datasets: pip install datasets'
        raise ImportError(problem) from error
    return datasets


def refuse_count(name: str, value: object, *, least: int) -> None:
    """Raise for what is no integer, as True is none, or is too small."""
    if as_int(name, value) < least:
        raise ValueError(f"{name}: expected {least} or more, found {value}")
