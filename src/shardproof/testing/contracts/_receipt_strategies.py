"""Receipts that lie."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from shardproof.testing.contracts._hostile import hostile_json, hostile_names
from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples.receipts import receipt_bytes

__all__ = ["hostile_receipts"]


def hostile_receipts(layout: Layout, index: int) -> st.SearchStrategy[bytes]:
    """Return a strategy for receipts by which a shard is not done; see `hostile_manifests`."""
    if layout.states[index] != "ok":
        raise ValueError(f"shard {index}: expected ok, found {layout.states[index]}")
    receipt = json.loads(receipt_bytes(layout, index) or b"")
    texts = [_told(receipt, lie) for lie in _lies(layout, index)]
    lies = [st.sampled_from(texts) for _ in range(3)]  # each counts: there are many
    names = hostile_names().map(lambda name: _told(receipt, {_PATH: name}))
    return st.one_of(hostile_json(receipt), *lies, names)


_Lie = dict[tuple[str, ...], object]
"""What is in which fields."""

_PATH = ("files", "bin", "path")
_WRONG_TYPES: tuple[object, ...] = (None, True, False, 1.5, [], ["completed"], {}, {"a": {}})


def _told(receipt: dict[str, Any], lie: _Lie) -> bytes:
    """Return the receipt with other values in some fields."""
    told = copy.deepcopy(receipt)
    for (*parents, last), value in lie.items():
        inner = told
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
    return json.dumps(told).encode()


def _lies(layout: Layout, index: int) -> Iterator[_Lie]:
    for field, wrong in _wrong_values(layout, index).items():
        for lie in (*_WRONG_TYPES, *wrong):
            yield {field: lie}
    # None means that no size was recorded, and a wrong size is not wrong at every level.
    for lie in (*_WRONG_TYPES[1:], "96", -1):
        yield {("files", "bin", "bytes"): lie}
    # Equal to 0 in Python, or not more than it: still not the number 0.
    for lie in (None, False, 0.5, "0", [], -1):
        yield {("files",): {}, ("stats", "num_sequences"): lie}


def _halves(layout: Layout, index: int) -> Iterator[dict[str, Any]]:
    """Lists of one of the two outputs, which is whole: twice, or without the other."""
    files = json.loads(receipt_bytes(layout, index) or b"")["files"]
    for kind, other in (("bin", "idx"), ("idx", "bin")):
        yield {kind: files[kind]}
        yield {kind: files[kind], other: files[kind]}


def _wrong_values(layout: Layout, index: int) -> dict[tuple[str, ...], tuple[object, ...]]:
    """Fields that every reader must go by, and what else than wrong types may not be there."""
    name, plan_hash = layout.bin_name(index), layout.plan_hash
    return {
        ("status",): (0, "", "Completed", "completed ", "started", "failed", "unknown"),
        ("plan_hash",): (0, "", plan_hash[:-1], plan_hash + " ", f"0x{plan_hash}"),
        ("shard_index",): (str(index), -1, index + 1, 10**30, 2**64 + index),
        ("schema_version",): (0, 2, 99, -1, "1"),
        ("files",): ("bin", 0, [{"path": name, "bytes": 96}], *_halves(layout, index)),
        ("files", "bin"): (name, 0, [name]),
        _PATH: (0, f"../{plan_hash}/{name}", f"receipts/../{name}", f"./{name}", f".//{name}"),
    }
