"""Hypothesis strategies for plan directories of data-prep runs, and for receipts that lie."""

import copy
import json
from collections.abc import Collection, Iterator
from typing import Any

from hypothesis import strategies as st

from shardproof.testing.contracts._choice import chosen
from shardproof.testing.contracts._hostile import hostile_json, hostile_names
from shardproof.testing.samples.receipts import (
    ReceiptsLayout,
    ReceiptState,
    receipt_bytes,
    receipts_layout,
)

__all__ = ["hostile_receipts", "receipt_states", "receipts_layouts"]


def receipt_states(
    states: Collection[str] = tuple(ReceiptState),
) -> st.SearchStrategy[ReceiptState]:
    """Return a strategy for what became of one shard; shrinks to `ReceiptState.COMPLETED`.

    Args:
        states: Those to choose from.

    Raises:
        ValueError: None, or something that is no state.

    Example:
        >>> from hypothesis import find
        >>> find(receipt_states(["torn", "completed"]), lambda state: True)
        <ReceiptState.COMPLETED: 'completed'>
    """
    return st.sampled_from(chosen("states", states, ReceiptState))


def receipts_layouts(
    *, max_shards: int = 8, states: Collection[str] = tuple(ReceiptState)
) -> st.SearchStrategy[ReceiptsLayout]:
    """Return a strategy for plan directories, from runs that are done to ruins.

    Some are done: whoever does everything again is as wrong as whoever skips too much.
    It shrinks to few shards, and to completed ones.

    Args:
        max_shards: Largest number of shards.
        states: What may become of a shard; `ReceiptState.COMPLETED` is always among them.

    Raises:
        TypeError: A number of shards that is no integer.
        ValueError: No shards; something that is no state.

    Example:
        >>> from hypothesis import find
        >>> find(receipts_layouts(), lambda value: "torn" in value.states)
        receipts_layout(n_shards=1, torn=[0])
    """
    if type(max_shards) is not int:
        raise TypeError(f"max_shards: expected int, found {max_shards!r}")
    if max_shards < 1:
        raise ValueError(f"max_shards: expected 1 or more, found {max_shards}")
    one = receipt_states([ReceiptState.COMPLETED, *states])
    done = st.integers(1, max_shards).map(lambda n: [ReceiptState.COMPLETED] * n)
    ruins = st.lists(one, min_size=1, max_size=max_shards)
    return _layouts(st.one_of(done, ruins))


@st.composite  # not builds(), which would print its own call instead of the layout's
def _layouts(draw: st.DrawFn, all_states: st.SearchStrategy[list[ReceiptState]]) -> ReceiptsLayout:
    return ReceiptsLayout(states=tuple(draw(all_states)), seed=draw(st.integers(0, 3)))


def hostile_receipts(
    value: ReceiptsLayout | None = None, index: int = 0
) -> st.SearchStrategy[bytes]:
    """Return a strategy for receipts by which no shard is done, whatever files there are.

    They are no JSON, or not quite (`hostile_json`); or a field that a reader goes by has the wrong
    type, or a wrong value, such as one output where two are owed; or the outputs have names that no
    path may be made of, some of which lead to the very files that were meant. A right reader takes
    each for a shard that is left to do, and raises nothing.

    Args:
        value: The plan directory; by default ``receipts_layout(n_shards=1)``.
        index: The shard, which must be completed there.

    Raises:
        ValueError: The shard is in another state.

    Example:
        >>> from hypothesis import find
        >>> find(hostile_receipts(), lambda text: len(text) < 9)
        b''
    """
    value = receipts_layout(n_shards=1) if value is None else value
    if value.states[index] is not ReceiptState.COMPLETED:
        raise ValueError(f"shard {index}: expected completed, found {value.states[index]}")
    receipt = json.loads(receipt_bytes(value, index) or b"")
    texts = [_told(receipt, lie) for lie in _lies(value, index)]
    lies = [st.sampled_from(texts) for _ in range(3)]  # each counts: there are many
    names = hostile_names().map(lambda name: _told(receipt, {_PATH: name}))
    return st.one_of(hostile_json(receipt), *lies, names)


_Lie = dict[tuple[str, ...], object]
"""What is in which fields."""

_PATH = ("files", "bin", "path")
_WRONG_TYPES: tuple[object, ...] = (None, True, False, 1.5, [], ["completed"], {}, {"a": {}})


def _told(receipt: dict[str, Any], lie: _Lie) -> bytes:
    """The receipt with other values in some fields."""
    told = copy.deepcopy(receipt)
    for (*parents, last), value in lie.items():
        inner = told
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    return json.dumps(told).encode()


def _lies(value: ReceiptsLayout, index: int) -> Iterator[_Lie]:
    for field, wrong in _wrong_values(value, index).items():
        for lie in (*_WRONG_TYPES, *wrong):
            yield {field: lie}
    # None means that no size was recorded, and a wrong size is not wrong at every level.
    for lie in (*_WRONG_TYPES[1:], "96", -1):
        yield {("files", "bin", "bytes"): lie}
    # Equal to 0 in Python, or not more than it: still not the number 0.
    for lie in (None, False, 0.5, "0", [], -1):
        yield {("files",): {}, ("stats", "num_sequences"): lie}


def _halves(value: ReceiptsLayout, index: int) -> Iterator[dict[str, Any]]:
    """Lists of one of the two outputs, which is whole: twice, or without the other."""
    files = json.loads(receipt_bytes(value, index) or b"")["files"]
    for kind, other in (("bin", "idx"), ("idx", "bin")):
        yield {kind: files[kind]}
        yield {kind: files[kind], other: files[kind]}


def _wrong_values(value: ReceiptsLayout, index: int) -> dict[tuple[str, ...], tuple[object, ...]]:
    """Fields that every reader must go by, and what else than wrong types may not be there."""
    name, plan_hash = value.bin_name(index), value.plan_hash
    return {
        ("status",): (0, "", "Completed", "completed ", "started", "failed", "unknown"),
        ("plan_hash",): (0, "", plan_hash[:-1], plan_hash + " ", f"0x{plan_hash}"),
        ("shard_index",): (str(index), -1, index + 1, 10**30, 2**64 + index),
        ("schema_version",): (0, 2, 99, -1, "1"),
        ("files",): ("bin", 0, [{"path": name, "bytes": 96}], *_halves(value, index)),
        ("files", "bin"): (name, 0, [name]),
        _PATH: (0, f"../{plan_hash}/{name}", f"receipts/../{name}", f"./{name}", f".//{name}"),
    }
