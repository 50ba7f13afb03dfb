"""How an order is dealt to ranks from some place of an epoch on."""

import dataclasses
from collections.abc import Sequence

from shardproof.loaders._options import Options
from shardproof.loaders.order._orders import Order
from shardproof.loaders.order._state import Part, Place
from shardproof.loaders.order._streams import InOrder, Plan, Stream

__all__ = ["Dealing"]


@dataclasses.dataclass(frozen=True, slots=True)
class Dealing:
    """An order, and to whom it is dealt.

    Attributes:
        order: Which rows come when.
        options: Of the loader.
    """

    order: Order
    options: Options

    def plan(self, start: Place) -> Plan:
        """Return how what is left of an epoch is dealt."""
        stream = self.order.stream(start.epoch)
        for generation, part in enumerate(start.before):
            plan = self._dealt(stream, part.world_size, (start.epoch, generation))
            stream = plan.after(part.n_batches)
        key = start.epoch, len(start.before)
        return self._dealt(stream, self.options["world_size"], key)

    def counted(self, before: Sequence[Part] = ()) -> Plan:
        """Return a plan for its counts, which don't depend on the order."""
        n_rows = self.order.n_rows
        for part in before:
            n_rows = self._dealt(InOrder(n_rows), part.world_size, (0, 0)).n_left(part.n_batches)
        return self._dealt(InOrder(n_rows), self.options["world_size"], (0, 0))

    def _dealt(self, stream: Stream, world_size: int, key: tuple[int, int]) -> Plan:
        seed = self.order.window_seed
        return Plan(
            stream,
            world_size,
            self.options["batch_size"],
            self.order.window_rows,
            None if seed is None else (seed, *key),
            self.options["drop_last"],
            self.options["even_batches"],
        )

    def n_left(self, place: Place) -> int:
        """Return how many batches of its epoch come to this rank after a place."""
        return self.counted(place.before).n_batches(self.options["rank"]) - place.n_batches

    def is_end(self, place: Place) -> bool:
        """Whether no rank has anything left of the epoch."""
        return place.n_batches >= self.counted(place.before).n_steps
