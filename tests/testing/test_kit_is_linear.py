"""Twice the shards are twice the work: the kit makes directories as large as those in use."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shardproof.testing import (
    Layout,
    ShardState,
    expected_findings,
    expected_unproven,
    write_layout,
)
from shardproof.testing.samples.checkpoint import CheckpointShardState, expected_problems
from shardproof.testing.samples.receipts import ReceiptState, expected_pending

FEW, MANY = 2, 8  # of each state


def n_calls(work: Callable[[], object]) -> int:
    """How many functions of Python and of C are called, and generators resumed."""
    count = 0

    def hear(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def directory(n_each: int) -> Layout:
    """So many shards in each state, and as many whole ones as all those."""
    states = [state for state in ShardState if state is not ShardState.OK]
    return Layout(2 * n_each * len(states), labels=True, **named(states, n_each))


def checkpoint(n_each: int) -> Layout:
    states = [state for state in CheckpointShardState if state is not CheckpointShardState.OK]
    return Layout(n_each * len(states), format="checkpoint", **named(states, n_each))


def receipts(n_each: int) -> Layout:
    """So many shards in each state, and as many completed ones as all those."""
    states = [state for state in ReceiptState if state is not ReceiptState.OK]
    return Layout(2 * n_each * len(states), format="receipts", **named(states, n_each))


def named(states: Sequence[str], n_each: int) -> dict[str, Any]:
    return {
        str(state): range(place * n_each, (place + 1) * n_each)
        for place, state in enumerate(states)
    }


DIRECTORIES: dict[str, Callable[[Layout, Path], object]] = {
    "write": write_layout,
    "whole": lambda value, path: write_layout(Layout(value.n_shards), path),
    "repr": lambda value, path: eval(repr(value)),
    "find": expected_findings,
    "find by digest": lambda value, path: expected_findings(
        value, path, level="valid", digests=True
    ),
    "unproven": lambda value, path: expected_unproven(value, path, level="valid"),
    "content": lambda value, path: [value.read_bytes(name) for name in value.file_names],
}


@pytest.mark.parametrize("name", DIRECTORIES)
def test_directories(name: str, tmp_path: Path) -> None:
    few, many = (
        n_calls(lambda n=n: DIRECTORIES[name](directory(n), tmp_path / str(n))) for n in (FEW, MANY)
    )
    assert many < 1.5 * MANY / FEW * few


CHECKPOINTS: dict[str, Callable[[Layout, Path], object]] = {
    "write": write_layout,
    "repr": lambda value, path: eval(repr(value)),
    "problems": lambda value, path: expected_problems(value),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints(name: str, tmp_path: Path) -> None:
    few, many = (
        n_calls(lambda n=n: CHECKPOINTS[name](checkpoint(n), tmp_path / str(n)))
        for n in (FEW, MANY)
    )
    assert many < 1.5 * MANY / FEW * few


RECEIPTS: dict[str, Callable[[Layout, Path], object]] = {
    "write": write_layout,
    "repr": lambda value, path: eval(repr(value)),
    "pending": lambda value, path: expected_pending(value, level="valid"),
    "names": lambda value, path: [*value.receipt_names, *value.bin_names, *value.idx_names],
}


@pytest.mark.parametrize("name", RECEIPTS)
def test_receipts(name: str, tmp_path: Path) -> None:
    few, many = (
        n_calls(lambda n=n: RECEIPTS[name](receipts(n), tmp_path / str(n))) for n in (FEW, MANY)
    )
    assert many < 1.5 * MANY / FEW * few
