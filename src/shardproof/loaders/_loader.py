"""What the loaders of batches share: an epoch, a rank, a place in it, an end."""

import copy
import weakref
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Self, TypedDict

import msgspec

from shardproof._arguments import as_int, checked
from shardproof.loaders._delivery import Delivery
from shardproof.loaders._forks import start_in_children
from shardproof.loaders._memory import Blocks
from shardproof.loaders._orders import Order
from shardproof.loaders._source import Batch, Source
from shardproof.loaders._state import Part, State, differences, read_state
from shardproof.loaders._streams import InOrder, Plan, Stream
from shardproof.saev import Metadata

__all__ = ["BatchLoader", "Options", "refuse", "refuse_number"]

Place = tuple[list[Part], int]
"""What was delivered with other world sizes, and the batches of each rank since then."""


class Options(TypedDict):
    """What both loaders take beside what they choose rows and an order by."""

    batch_size: int
    drop_last: bool
    even_batches: bool
    rank: int
    world_size: int
    n_threads: int
    as_torch: bool


class BatchLoader:
    """Delivers the rows of a source in batches.

    Args:
        source: The directory, proven.
        order: Which of its rows come when.
        options: Checked by `refuse`.
    """

    def __init__(self, source: Source, order: Order, options: Options) -> None:
        n_ranks = options["world_size"]
        if n_ranks > max(1, order.n_rows):
            raise ValueError(
                f"world_size: expected at most {order.n_rows}, as many as there are rows, found "
                f"{n_ranks}: some ranks would have none"
            )
        self._source, self._order, self._options = source, order, options
        self._epoch = 0
        self._resume: Place = ([], 0)
        self._place: Place = ([], 0)
        self.start()

    def start(self) -> None:
        """Begin with no iteration, as a process does that was forked or was sent a copy."""
        start_in_children(self)
        self._blocks = self._new_blocks()
        self._running: weakref.WeakSet[Generator[Batch, None, None]] = weakref.WeakSet()

    @property
    def metadata(self) -> Metadata:
        """What the directory holds."""
        return self._source.selection.metadata

    @property
    def d_model(self) -> int:
        """Values of one activation."""
        return self.metadata.d_model

    @property
    def n_samples(self) -> int:
        """How many rows this rank delivers in an epoch."""
        return self._counted.n_delivered(self._options["rank"])

    @property
    def n_batches(self) -> int:
        """How many batches this rank delivers in an epoch; the same as ``len()``."""
        return self._counted.n_batches(self._options["rank"])

    @property
    def _counted(self) -> Plan:
        """A plan for its counts, which don't depend on the order."""
        return self._dealt(InOrder(self._order.n_rows), self._options["world_size"], 0)

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[Batch]:
        self._place, self._resume = self._resume, ([], 0)
        run = self._run(*self._place)
        self._running.add(run)
        return run

    def _run(self, before: list[Part], n_done: int) -> Generator[Batch, None, None]:
        options = self._options
        plan = self._plan(before)
        delivery = Delivery(self._source, plan, options["rank"], options["n_threads"], self._blocks)
        for batch in delivery.batches(n_done):
            n_done += 1
            self._place = before, n_done
            finished = [self._finished(batch)]
            del batch  # what is still named here could not be used again
            yield finished.pop()

    def _finished(self, batch: Batch) -> Batch:
        if not self._options["as_torch"]:
            return batch
        from shardproof.loaders import _torch  # noqa: PLC0415 - where it is installed, and asked for

        return _torch.tensors(batch, self.metadata.dtype)

    def _plan(self, before: list[Part]) -> Plan:
        """Return how what is left of the epoch is dealt."""
        stream = self._order.stream(self._epoch)
        for generation, part in enumerate(before):
            stream = self._dealt(stream, part.world_size, generation).after(part.n_batches)
        return self._dealt(stream, self._options["world_size"], len(before))

    def _dealt(self, stream: Stream, world_size: int, generation: int) -> Plan:
        options, seed = self._options, self._order.window_seed
        return Plan(
            stream,
            world_size,
            options["batch_size"],
            self._order.window_rows,
            None if seed is None else (seed, self._epoch, generation),
            options["drop_last"],
            options["even_batches"],
        )

    def of_worker(self, worker: int, n_workers: int) -> Self:
        """Return the part of this loader that one of several workers of its rank delivers."""
        part = copy.copy(self)
        options = self._options
        before, n_batches = self._resume
        if n_workers > 1:  # what was delivered was dealt to fewer
            before = [*before, Part(options["world_size"], n_batches)]
            part._resume = part._place = before, 0
        part._options = Options(
            **options
            | {
                "rank": options["rank"] * n_workers + worker,
                "world_size": options["world_size"] * n_workers,
            }
        )
        return part

    def torch_dataset(self) -> Any:
        """Return this loader for ``torch.utils.data.DataLoader(..., batch_size=None)``.

        Each of its workers delivers a part of this rank's rows.
        """
        from shardproof.loaders import _torch  # noqa: PLC0415 - where it is installed, and asked for

        return _torch.TorchDataset(self)

    @property
    def epoch(self) -> int:
        """Number of the epoch, which the order depends on."""
        return self._epoch

    @checked
    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; another than the present one begins at its start.

        Args:
            epoch: 0 or more. The present one changes nothing, so that a loop may set the epoch in
                which `load_state_dict` left it.

        Raises:
            ValueError: Below 0.
        """
        refuse_number("epoch", epoch, least=0)
        if epoch != self._epoch:
            self._epoch = epoch
            self._resume = self._place = ([], 0)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is that delivered last: small, and plain JSON.

        All ranks are taken to have delivered as many batches as this one, as they have after a step
        of training. So the state of any rank is that of all.
        """
        before, n_batches = self._place
        now = Part(self._options["world_size"], n_batches)
        state: dict[str, Any] = msgspec.to_builtins(self._state([*before, now]))
        return state

    def _state(self, delivered: list[Part]) -> State:
        selection, options = self._source.selection, self._options
        return State(
            loader=type(self).__name__,
            directory=selection.metadata.hash,
            layer=selection.layer,
            tokens=selection.tokens,
            batch_size=options["batch_size"],
            drop_last=options["drop_last"],
            even_batches=options["even_batches"],
            order=self._order.settings,
            epoch=self._epoch,
            delivered=delivered,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin with the batch after this state, whatever the world size.

        Nothing that was delivered before is read.

        Args:
            state: What `state_dict` returned.

        Raises:
            ValueError: The state is of another directory, of other rows or of another order; or it
                is none.
        """
        found = read_state(state)
        if wrong := differences(self._state([]), found):
            raise ValueError(f"this state is of another loader: {'; '.join(wrong)}")
        *before, last = found.delivered or [Part(self._options["world_size"], 0)]
        if any(part.world_size > max(1, self._order.n_rows) for part in found.delivered):
            raise ValueError("delivered: expected at most as many ranks as there are rows")
        self._epoch = found.epoch
        same = last.world_size == self._options["world_size"]
        self._resume = (before, last.n_batches) if same else ([*before, last], 0)
        self._place = self._resume

    def _new_blocks(self) -> Blocks:
        """Memory for two windows, those that threads have begun, and the caller's batch."""
        size, n_threads = self._options["batch_size"], self._options["n_threads"]
        n_kept = 2 * (self._order.window_rows // size) + n_threads + 1
        return Blocks(size, self._source.selection.row_bytes, n_kept)

    def close(self) -> None:
        """End every iteration that is under way, with its threads and descriptors.

        The memory that was kept for the next one is given back. Another may begin all the same.
        """
        for run in list(self._running):
            run.close()
        self._blocks = self._new_blocks()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        own = {"_running", "_blocks"}
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.start()


def refuse(options: Options) -> None:
    """Raise for a number that is none or out of range."""
    for name, least in (("batch_size", 1), ("world_size", 1), ("n_threads", 1), ("rank", 0)):
        refuse_number(name, options[name], least=least)  # type: ignore[literal-required]
    if options["rank"] >= options["world_size"]:
        raise ValueError(
            f"rank: expected one below world_size={options['world_size']}, found {options['rank']}"
        )


def refuse_number(name: str, value: object, *, least: int) -> None:
    """Raise for what is no integer, as True is none, or is too small."""
    if as_int(name, value) < least:
        raise ValueError(f"{name}: expected {least} or more, found {value}")
