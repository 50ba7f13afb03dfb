"""What the loaders of batches share: epochs, ranks, a position to come back to, an end."""

import contextlib
import copy
import dataclasses
import functools
import weakref
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, overload

import msgspec

from shardproof._base.arguments import checked, count, rank_of
from shardproof._base.messages import quoted, told
from shardproof.loaders._delivery import Delivery, torch_module
from shardproof.loaders._reader import DirectoryReader
from shardproof.loaders.io._memory import BufferPool
from shardproof.loaders.io._read_ahead import ReadAhead, threads_that_help, windows_at_once
from shardproof.loaders.io._row_source import Arrays, Batch, Framework_co, RowSource
from shardproof.loaders.io._sending import send_ahead
from shardproof.loaders.order._epoch_plan import (
    MOST_COUNTED,
    DeliveredPart,
    EpochPosition,
    RankShare,
)
from shardproof.loaders.order._epochs import EpochCursor, LoaderState

if TYPE_CHECKING:
    import torch


def rank_for(
    batch_size: int, rank: int | None, world_size: int | None, workers: int | None, group: object
) -> tuple[int, int]:
    """Return rank and world size; raise if a loader can't deliver so, before anything is read."""
    count("batch_size", batch_size, 1)
    if workers is not None:
        count("workers", workers, 1)
    own_rank, size = 0, 1
    if group is not None:
        from shardproof.distributed import group_of  # noqa: PLC0415 - rarely used

        ranks = group_of(group)
        own_rank, size = ranks.rank, ranks.size
    return rank_of(own_rank if rank is None else rank, size if world_size is None else world_size)


class BatchLoader(DirectoryReader, Generic[Framework_co]):
    """Delivers the rows of a source in batches, as its rank's share of them says."""

    # By these torch's DataLoaders and their like learn that what `dataset` delivers are batches
    # already, in an order of the loader's own, which threads of this process read.
    batch_size = sampler = batch_sampler = prefetch_factor = None
    drop_last, num_workers = False, 0

    def __init__(
        self, source: RowSource, share: RankShare, workers: int | None, delivery: Delivery
    ) -> None:
        n_ranks, n_rows = share.world_size, share.order.n_rows
        if n_ranks > max(1, n_rows):
            raise ValueError(
                f"world_size: expected at most {n_rows}, as many as there are rows, found "
                f"{n_ranks}: some ranks would have none"
            )
        self._share, self._workers, self._delivery = share, workers, delivery
        self._n_that_help, self._n_processes = threads_that_help(source.root), 1
        self._cursor = EpochCursor(share, EpochPosition(0))
        super().__init__(source)

    def _start(self) -> None:
        super()._start()
        self._pool = self._new_pool()
        self._running: weakref.WeakSet[Generator[Batch, None, None]] = weakref.WeakSet()

    def _new_pool(self) -> BufferPool:
        """Memory for two windows, those that threads have begun, and the caller's batch."""
        size, order = self._share.batch_size, self._share.order
        row_bytes = self._source.selection.row_bytes
        n_kept = 2 * (order.window_rows // size) + self._n_threads + 1
        n_kept *= windows_at_once(self._share, row_bytes)
        # torch takes pinned memory back itself, once no copy that it knows of is under way.
        n_kept = 0 if self._delivery.pin_memory else n_kept + self._delivery.n_under_way
        n_rows = min(size, max(1, order.n_rows))
        return BufferPool(n_rows, row_bytes, n_kept, self._delivery.memory)

    @property
    def _n_threads(self) -> int:
        """How many threads read, where several processes share the work."""
        return self._workers or max(1, self._n_that_help // self._n_processes)

    def _arguments(self) -> dict[str, object]:
        names = ("batch_size", "drop_last", "rank", "world_size", "even_batches")
        dealt = {name: getattr(self._share, name) for name in names}
        how = {"workers": self._workers} | dataclasses.asdict(self._delivery)
        return super()._arguments() | self._share.order.settings | dealt | how

    @property
    def is_on_host(self) -> bool:
        """Whether batches are in the memory of the host."""
        return self._delivery.is_on_host

    @property
    def n_samples(self) -> int:
        """How many rows this rank delivers in an epoch."""
        return self._share.counted().n_delivered(self._share.rank)

    @property
    def n_batches(self) -> int:
        """How many batches this rank delivers in an epoch; the same as ``len()``."""
        return self._share.counted().n_batches(self._share.rank)

    @property
    def n_left(self) -> int:
        """How many batches the next iteration delivers, which after a resume are fewer."""
        return self._share.n_left(self._cursor.next_start)

    def __len__(self) -> int:
        return self.n_batches

    def __getitem__(self, index: object) -> NoReturn:
        """Raise: so torch's DataLoader asks what it is given."""
        problem = "no rows by number: write DataLoader(loader.torch_dataset(), batch_size=None)"
        raise TypeError(f"{type(self).__name__} has {problem}, or take an IndexedDataset")

    @overload
    def __iter__(self: "BatchLoader[Literal['numpy']]") -> Iterator[Batch[Arrays]]: ...
    @overload
    def __iter__(self: "BatchLoader[Literal['torch']]") -> "Iterator[Batch[torch.Tensor]]": ...
    @overload
    def __iter__(self) -> Iterator[Batch]: ...
    def __iter__(self) -> Iterator[Any]:
        run = self._run(self._cursor.next_start, self._cursor.n_choices)
        self._running.add(run)
        return run

    def _run(self, start: EpochPosition, n_choices: int) -> Generator[Batch, None, None]:
        arrive = functools.partial(self._cursor.arrive, n_choices=n_choices)
        self._cursor.begin(start, n_choices)
        plan, rank = self._share.plan(start), self._share.rank
        n_done, n_own = start.n_batches, plan.n_batches(rank)
        ahead = ReadAhead(self._source, plan, rank, self._n_threads, self._pool)
        delivery, dtype = self._delivery, self.metadata.dtype
        batches = ahead.batches(n_done)
        if not delivery.is_on_host:
            batches = send_ahead(batches, delivery.open_device(dtype), delivery.n_ahead)
        # Closed here: an interrupt is lost where the interpreter closes what has no reference.
        with contextlib.closing(batches):
            for batch in batches:
                n_done += 1
                arrive(dataclasses.replace(start, n_batches=n_done), is_last=n_done == n_own)
                finished = [delivery.arrays(batch, dtype) if delivery.is_on_host else batch]
                del batch  # what is still named here could not be used again
                yield finished.pop()
        # A rank that asked for one more batch is in step with the rank that has one more.
        arrive(dataclasses.replace(start, n_batches=max(n_done, plan.n_steps)), is_last=True)

    def of_worker(self, worker: int, n_workers: int, start: EpochPosition | None = None) -> Self:
        """Return the part of this loader that one of several workers of its rank delivers.

        Args:
            worker: Which of them.
            n_workers: How many there are.
            start: Where it begins; by default where the next iteration would.
        """
        start = start or self._cursor.next_start
        part, share = copy.copy(self), self._share
        if n_workers > 1:  # what was delivered was dealt to fewer
            done = DeliveredPart(share.world_size, start.n_batches)
            start = EpochPosition(start.epoch, (*start.before, done))
        part._share = dataclasses.replace(
            share, rank=share.rank * n_workers + worker, world_size=share.world_size * n_workers
        )
        part._n_processes = n_workers
        part._cursor = EpochCursor(part._share, start)
        return part

    @checked
    def torch_dataset(self, *, num_workers: int | None = None) -> Any:
        """Return this loader for ``torch.utils.data.DataLoader(..., batch_size=None)``.

        Each of its workers delivers a part of this rank's rows. It has ``state_dict()`` and
        ``load_state_dict()`` too, which torchdata's ``StatefulDataLoader`` asks its workers for.

        Args:
            num_workers: Of the DataLoader. It has a length then: the batches of an epoch, which
                depend on the number of workers. Iterating with another number is a ValueError.

        Raises:
            ModuleNotFoundError: There is no torch.
            ValueError: ``num_workers`` is negative.
        """
        torch = torch_module("torch_dataset()")
        if num_workers is not None:
            count("num_workers", num_workers)
        return torch.TorchDataset(self, self._cursor.shared(), num_workers)

    @property
    def dataset(self) -> Any:
        """The same as `torch_dataset`: what accelerate asks a loader for."""
        return self.torch_dataset()

    @property
    def epoch(self) -> int:
        """Number of the epoch that was delivered last, or that was chosen or loaded since then."""
        return self._cursor.position.epoch

    @checked
    def epochs(self, n: int) -> Iterator[int]:
        """Yield the number of each epoch that is left of ``n``, those before a resume included.

        After `load_state_dict` the first is the one that was under way, of which iterating delivers
        the rest; of a finished run there is none. Break off an epoch, and the next one follows.

        Args:
            n: How many epochs in all, 0 to 2**53; another number is a ValueError.

        Example:
            >>> from shardproof import OrderedDataLoader
            >>> loader = OrderedDataLoader(shards_dir, layer=6)
            >>> for epoch in loader.epochs(2):
            ...     print(epoch, sum(len(batch["act"]) for batch in loader))
            0 33
            1 33
            >>> len(list(loader.epochs(2)))
            0
        """
        return self._cursor.epochs(count("n", n, 0, MOST_COUNTED))

    @checked
    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration delivers. After it come the next ones.

        Args:
            epoch: 0 to 2**53. That of a state that was loaded changes nothing, so that a loop may
                set the epoch in which `load_state_dict` left it.

        Raises:
            ValueError: Below 0, or above 2**53, which is more than a state holds.
        """
        count("epoch", epoch, 0, MOST_COUNTED)
        self._cursor.choose(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is that delivered last: small, and plain JSON.

        All ranks are taken to have delivered as many batches as this one, as they have after a step
        of training. So the state of any rank is that of all.
        """
        position = self._cursor.position
        now = DeliveredPart(self._share.world_size, position.n_batches)
        state: dict[str, Any] = msgspec.to_builtins(
            self._state(position.epoch, [*position.before, now])
        )
        return state

    def _state(self, epoch: int, delivered: list[DeliveredPart]) -> LoaderState:
        selection, share = self._source.selection, self._share
        return LoaderState(
            loader=type(self).__name__,
            directory=selection.metadata.hash,
            layer=selection.layer,
            tokens=selection.tokens,
            batch_size=share.batch_size,
            drop_last=share.drop_last,
            even_batches=share.even_batches,
            order=share.order.settings,
            epoch=epoch,
            delivered=delivered,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration with the batch after what `state_dict` returned.

        Nothing that was delivered before is read, whatever the world size is now. After the end of
        an epoch comes the next one.

        Raises:
            ValueError: The state is of another directory, of other rows or of another order; or it
                is none.
        """
        try:
            found = msgspec.convert(state, LoaderState)
        except msgspec.ValidationError as error:
            raise ValueError(f"expected what state_dict() returned: {told(error)}") from None
        own = self._state(found.epoch, found.delivered)
        wrong = [
            f"{name}: expected {quoted(getattr(own, name))}, found {quoted(getattr(found, name))}"
            for name in own.__struct_fields__
            if getattr(own, name) != getattr(found, name)
        ]
        if wrong:
            raise ValueError(f"this state is of another loader: {'; '.join(wrong)}")
        *before, last = found.delivered or [DeliveredPart(self._share.world_size, 0)]
        if any(part.world_size > max(1, self._share.order.n_rows) for part in found.delivered):
            raise ValueError("delivered: expected at most as many ranks as there are rows")
        start = EpochPosition(found.epoch, tuple(before), last.n_batches)
        if last.world_size != self._share.world_size:
            start = EpochPosition(found.epoch, (*before, last))
        self._cursor.resume(start)

    def close(self) -> None:
        """End every iteration that is under way, with its threads and descriptors.

        The memory that was kept for the next one is given back. Another may begin all the same.
        """
        for run in list(self._running):
            run.close()
        self._pool = self._new_pool()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_running", "_pool"}
        return {name: value for name, value in vars(self).items() if name not in own}
