"""What the loaders of batches share: an epoch, a rank, a place in it, an end."""

import contextlib
import copy
import dataclasses
import functools
import weakref
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Self

import msgspec

from shardproof._base.arguments import checked
from shardproof.loaders._options import Options, refuse_number, torch_module
from shardproof.loaders._processes import end_with_process
from shardproof.loaders.io._delivery import Delivery
from shardproof.loaders.io._memory import Blocks
from shardproof.loaders.io._source import Batch, Source
from shardproof.loaders.order._course import Course
from shardproof.loaders.order._dealing import Dealing
from shardproof.loaders.order._orders import Order
from shardproof.loaders.order._state import Part, Place, State, differences, read_state
from shardproof.saev import Metadata

__all__ = ["BatchLoader"]


class BatchLoader:
    """Delivers the rows of a source in batches.

    Args:
        source: The directory, proven.
        order: Which of its rows come when.
        options: Checked by `refuse`.

    Attributes:
        batch_size: None: torch's DataLoaders and their like are told so that what `dataset`
            delivers are batches already.
        drop_last: False, for the same reason.
        sampler: None, since the order is the loader's own.
        batch_sampler: None.
        num_workers: 0, since threads of this process read.
        prefetch_factor: None, which belongs to workers.
    """

    batch_size = sampler = batch_sampler = prefetch_factor = None
    drop_last, num_workers = False, 0

    def __init__(self, source: Source, order: Order, options: Options) -> None:
        n_ranks = options["world_size"]
        if n_ranks > max(1, order.n_rows):
            raise ValueError(
                f"world_size: expected at most {order.n_rows}, as many as there are rows, found "
                f"{n_ranks}: some ranks would have none"
            )
        self._source, self._dealing = source, Dealing(order, options)
        self._course = Course(self._dealing, Place(0))
        self.start()

    def start(self) -> None:
        """Begin with no iteration, as a process does that was forked or was sent a copy."""
        end_with_process(self)
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
        return self._dealing.counted().n_delivered(self._dealing.options["rank"])

    @property
    def n_batches(self) -> int:
        """How many batches this rank delivers in an epoch; the same as ``len()``."""
        return self._dealing.counted().n_batches(self._dealing.options["rank"])

    @property
    def n_left(self) -> int:
        """How many batches the next iteration delivers, which after a resume are fewer."""
        return self._dealing.n_left(self._course.next_start)

    def __len__(self) -> int:
        return self.n_batches

    def __iter__(self) -> Iterator[Batch]:
        run = self._run(self._course.next_start, self._course.n_choices)
        self._running.add(run)
        return run

    def _run(self, start: Place, n_choices: int) -> Generator[Batch, None, None]:
        arrive = functools.partial(self._course.arrive, n_choices=n_choices)
        self._course.begin(start, n_choices)
        options, plan = self._dealing.options, self._dealing.plan(start)
        n_done, n_own = start.n_batches, plan.n_batches(options["rank"])
        delivery = Delivery(self._source, plan, options["rank"], options["n_threads"], self._blocks)
        # Closed here: an interrupt is lost where the interpreter closes what nobody holds.
        with contextlib.closing(delivery.batches(n_done)) as batches:
            for batch in batches:
                n_done += 1
                arrive(dataclasses.replace(start, n_batches=n_done), is_last=n_done == n_own)
                finished = [self._finished(batch)]
                del batch  # what is still named here could not be used again
                yield finished.pop()
        # Whoever asked for one more is in step with the rank that has one more.
        n_steps = max(n_done, plan.n_steps)
        arrive(dataclasses.replace(start, n_batches=n_steps), is_last=True)

    def _finished(self, batch: Batch) -> Batch:
        if not self._dealing.options["as_torch"]:
            return batch
        tensors: Batch = torch_module("as_torch=True").tensors(batch, self.metadata.dtype)
        return tensors

    def of_worker(self, worker: int, n_workers: int, start: Place | None = None) -> Self:
        """Return the part of this loader that one of several workers of its rank delivers.

        Args:
            worker: Which of them.
            n_workers: How many there are.
            start: Where it begins; by default where the next iteration would.
        """
        start = start or self._course.next_start
        part = copy.copy(self)
        options = self._dealing.options
        if n_workers > 1:  # what was delivered was dealt to fewer
            done = Part(options["world_size"], start.n_batches)
            start = Place(start.epoch, (*start.before, done))
        shared = Options(**options)
        shared["rank"] = options["rank"] * n_workers + worker
        shared["world_size"] = options["world_size"] * n_workers
        part._dealing = Dealing(self._dealing.order, shared)
        part._course = Course(part._dealing, start, is_pinned=True)
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
            refuse_number("num_workers", num_workers, least=0)
        return torch.TorchDataset(self, self._course.shared(), num_workers)

    @property
    def dataset(self) -> Any:
        """The same as `torch_dataset`: what accelerate asks a loader for."""
        return self.torch_dataset()

    @property
    def epoch(self) -> int:
        """Number of the epoch that was delivered last, or that was chosen or loaded since then."""
        return self._course.place.epoch

    @checked
    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration delivers. After it come the next ones.

        Args:
            epoch: 0 or more. That of a state that was loaded changes nothing, so that a loop may
                set the epoch in which `load_state_dict` left it.

        Raises:
            ValueError: Below 0.
        """
        refuse_number("epoch", epoch, least=0)
        self._course.choose(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is that delivered last: small, and plain JSON.

        All ranks are taken to have delivered as many batches as this one, as they have after a step
        of training. So the state of any rank is that of all.
        """
        place = self._course.place
        now = Part(self._dealing.options["world_size"], place.n_batches)
        found = self._state(place.epoch, [*place.before, now])
        state: dict[str, Any] = msgspec.to_builtins(found)
        return state

    def _state(self, epoch: int, delivered: list[Part]) -> State:
        selection, options = self._source.selection, self._dealing.options
        return State(
            loader=type(self).__name__,
            directory=selection.metadata.hash,
            layer=selection.layer,
            tokens=selection.tokens,
            batch_size=options["batch_size"],
            drop_last=options["drop_last"],
            even_batches=options["even_batches"],
            order=self._dealing.order.settings,
            epoch=epoch,
            delivered=delivered,
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration begin with the batch after this state, whatever the world size.

        Nothing that was delivered before is read. After the end of an epoch comes the next one.

        Args:
            state: What `state_dict` returned.

        Raises:
            ValueError: The state is of another directory, of other rows or of another order; or it
                is none.
        """
        found = read_state(state)
        if wrong := differences(self._state(0, []), found):
            raise ValueError(f"this state is of another loader: {'; '.join(wrong)}")
        *before, last = found.delivered or [Part(self._dealing.options["world_size"], 0)]
        if any(part.world_size > max(1, self._dealing.order.n_rows) for part in found.delivered):
            raise ValueError("delivered: expected at most as many ranks as there are rows")
        same = last.world_size == self._dealing.options["world_size"]
        start = Place(found.epoch, tuple(before), last.n_batches)
        if not same:
            start = Place(found.epoch, (*before, last))
        self._course.resume(start)

    def _new_blocks(self) -> Blocks:
        """Memory for two windows, those that threads have begun, and the caller's batch."""
        size, n_threads = self._dealing.options["batch_size"], self._dealing.options["n_threads"]
        n_kept = 2 * (self._dealing.order.window_rows // size) + n_threads + 1
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
