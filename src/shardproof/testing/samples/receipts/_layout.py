"""One value that describes a plan directory of a data-prep run.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, TypedDict, Unpack

from shardproof.testing.samples._keywords import integer, refuse_unknown
from shardproof.testing.samples._named_states import indices_by_state, taken_states
from shardproof.testing.samples.receipts._states import ReceiptState

__all__ = ["ReceiptsKeywords", "ReceiptsLayout", "receipts_layout", "receipts_layout_of"]


class ReceiptsKeywords(TypedDict, total=False):
    """The keywords of `receipts_layout`; for those who pass them on."""

    seed: int
    absent: Iterable[int] | None
    started: Iterable[int] | None
    failed: Iterable[int] | None
    corrupt: Iterable[int] | None
    torn: Iterable[int] | None
    blank: Iterable[int] | None
    foreign: Iterable[int] | None
    misplaced: Iterable[int] | None
    twice: Iterable[int] | None
    unlisted: Iterable[int] | None
    nameless: Iterable[int] | None
    only_bin: Iterable[int] | None
    only_idx: Iterable[int] | None
    empty_shard: Iterable[int] | None
    missing_bin: Iterable[int] | None
    missing_idx: Iterable[int] | None
    missing_both: Iterable[int] | None
    emptied: Iterable[int] | None
    short: Iterable[int] | None
    long: Iterable[int] | None
    flipped: Iterable[int] | None
    directory: Iterable[int] | None
    unreadable: Iterable[int] | None
    escaping: Iterable[int] | None
    placeholder: Iterable[int] | None


@dataclasses.dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class ReceiptsLayout:
    """One plan directory as a value; make it with `receipts_layout`, which is also its repr.

    Attributes:
        states: The state of each shard, in order.
        seed: What the source files hold: another seed makes another plan.

    Raises:
        TypeError: A seed that is no integer.
        ValueError: No shards.
    """

    states: tuple[ReceiptState, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", integer("seed", self.seed))
        if not self.states:
            raise ValueError("n_shards: expected 1 or more, found 0")

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._said())
        return f"receipts_layout({said})"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print the call for Hypothesis and IPython too, which would list a dataclass's fields."""
        printer.text(repr(self))

    def _said(self) -> Iterator[tuple[str, object]]:
        """The keywords that make this value, without those left at their default."""
        yield "n_shards", self.n_shards
        yield from indices_by_state(self.states, ReceiptState.COMPLETED)
        if self.seed:
            yield "seed", self.seed

    @property
    def n_shards(self) -> int:
        """How many shards the plan has."""
        return len(self.states)

    @property
    def dataset_name(self) -> str:
        """Name of the data set."""
        return "corpus"

    @property
    def run_hash(self) -> str:
        """The run that the plan is part of: 16 hexadecimal digits."""
        return self._hash("run")

    @property
    def plan_hash(self) -> str:
        """The plan's name, which does not depend on what became of its shards."""
        return self._hash("plan")

    def _hash(self, what: str) -> str:
        text = f"{what} of {self.n_shards} shards, seed {self.seed}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def directory(self) -> PurePosixPath:
        """The plan directory, relative to the output directory."""
        return PurePosixPath("runs", self.run_hash, "datasets", self.dataset_name, self.plan_hash)

    @property
    def receipt_names(self) -> tuple[str, ...]:
        """Each shard's receipt, relative to the plan directory, in order."""
        return tuple(map(self.receipt_name, range(self.n_shards)))

    @property
    def bin_names(self) -> tuple[str, ...]:
        """Each shard's first output, relative to the plan directory, in order."""
        return tuple(map(self.bin_name, range(self.n_shards)))

    @property
    def idx_names(self) -> tuple[str, ...]:
        """Each shard's second output, relative to the plan directory, in order."""
        return tuple(map(self.idx_name, range(self.n_shards)))

    def receipt_name(self, index: int) -> str:
        """Return the name of one receipt; `receipt_names` makes all of them, each time."""
        return f"receipts/shard_{index:06}.json"

    def bin_name(self, index: int) -> str:
        """Return the name of one first output; `bin_names` makes all of them, each time."""
        return f"shard_{index:06}.bin"

    def idx_name(self, index: int) -> str:
        """Return the name of one second output; `idx_names` makes all of them, each time."""
        return f"shard_{index:06}.idx"

    def indices(self, state: ReceiptState) -> tuple[int, ...]:
        """Return which shards are in this state."""
        return tuple(index for index, found in enumerate(self.states) if found is state)


def receipts_layout(n_shards: int = 3, **keywords: Unpack[ReceiptsKeywords]) -> ReceiptsLayout:
    """Return the value that describes a plan directory; nothing is written.

    Each `ReceiptState` but ``completed`` is a keyword, and takes the indices of the shards in that
    state; all others are done.

    Args:
        n_shards: How many shards the plan has.
        **keywords:
            ``absent``, ``started``, ``failed``, ``missing_bin`` and so on: indices of shards; see
            `ReceiptState` for what each means.
            ``seed``: What the source files hold (0): another seed makes another plan.

    Raises:
        TypeError: Another keyword, or a number or an index that is no integer.
        ValueError: No shards, or an index out of range or named twice.

    Example:
        >>> receipts_layout(n_shards=8, started=[1], missing_bin=[2])
        receipts_layout(n_shards=8, started=[1], missing_bin=[2])
    """
    return receipts_layout_of("receipts_layout", {"n_shards": n_shards, **keywords})


def receipts_layout_of(
    function: str, keywords: Mapping[str, Any], **aliases: ReceiptState
) -> ReceiptsLayout:
    """Return what `receipts_layout` returns, for a function with other names for some states."""
    states = [state for state in ReceiptState if state is not ReceiptState.COMPLETED]
    names = {state.value: state for state in states} | aliases
    known = {"n_shards", *ReceiptsKeywords.__annotations__, *names}
    refuse_unknown(function, keywords.keys() - known, sorted(known))
    said = dict(keywords)
    n_shards = integer("n_shards", said.pop("n_shards"), at_least=1)
    found = taken_states(said, n_shards, names, ReceiptState.COMPLETED)
    return ReceiptsLayout(states=found, **said)
