"""Twice the shards are twice the work: the kit makes directories as large as those in use."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from shardproof.testing import Layout, expected_findings, expected_unproven, write_layout
from shardproof.testing.samples._layout import FORMATS, sample_format

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


def damaged(form: str, n_each: int) -> Layout:
    """So many shards in each state, and as many whole ones as all those."""
    _, *states = sample_format(form).states
    named = {str(s): range(at * n_each, (at + 1) * n_each) for at, s in enumerate(states)}
    return Layout(2 * n_each * len(states), format=form, **named)


WORK: dict[str, Callable[[Layout, Path], object]] = {
    "write": lambda value, path: write_layout(value, path / value.folder),
    "whole": lambda value, path: write_layout(
        value.replace(["ok"] * value.n_shards), path / value.folder
    ),
    "repr": lambda value, path: eval(repr(value)),
    "find": lambda value, path: [
        ask(value, path, level="valid", digests=digests)
        for ask in (expected_findings, expected_unproven)
        for digests in (False, True)
    ],
    "content": lambda value, path: [value.read_bytes(name) for name in value.file_names],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        *("saev", "receipts", "checkpoint"),
        *(pytest.param(each, marks=pytest.mark.exhaustive) for each in [*FORMATS][3:]),
    ],
)
@pytest.mark.parametrize("name", WORK)
def test_the_work_grows_with_the_number_of_shards(name: str, form: str, tmp_path: Path) -> None:
    few, many = (
        n_calls(lambda n=n: WORK[name](damaged(form, n), tmp_path / str(n))) for n in (FEW, MANY)
    )
    assert many < 1.5 * MANY / FEW * few
