"""Receipts of workers that claim, die, and come too late, held against a model."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shardproof import ReceiptStore
from tests.helpers.receipts_machine import STALE_AFTER, ReceiptsMachine

runs = settings(stateful_step_count=40, deadline=None, derandomize=True)
# A bug is found out when it is found: how little of a run shows it is Hypothesis' own work.
caught = settings(runs, max_examples=300, phases=[Phase.generate], print_blob=False, database=None)


@pytest.mark.slow
@pytest.mark.parametrize("n_runs", [10, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_our_store_does_what_the_model_does(n_runs: int) -> None:
    run_state_machine_as_test(ReceiptsMachine, settings=settings(runs, max_examples=n_runs))


def test_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    now = time.time
    run_state_machine_as_test(ReceiptsMachine, settings=settings(runs, max_examples=2))
    assert os.listdir(tmp_path) == []
    assert time.time is now


class Impatient(ReceiptsMachine):
    """Our own store with a clock that runs wild."""

    def open_store(self, path: Path, clock: Callable[[], float]) -> ReceiptStore:
        jumps = iter(range(10**9))
        return super().open_store(path, lambda: clock() + 10.0 * STALE_AFTER * next(jumps))


class Deaf(ReceiptsMachine):
    """Our own store, asked by somebody who does not listen when the claim is lost."""

    def complete(self, work: Any) -> bool:
        super().complete(work)
        return True


class Remembers(ReceiptsMachine):
    """A store that looks at the receipts when it is asked first, and no more."""

    def pending(self, store: Any) -> list[int]:
        store.__dict__.setdefault("first", list(super().pending(store)))
        return store.first


class Timid(ReceiptsMachine):
    """A store that takes no claim over."""

    def claim(self, store: Any, index: int) -> Any:
        claimed = self.__dict__.setdefault("claimed", set())
        if (store.path, index) in claimed:
            return None
        claimed.add((store.path, index))
        return super().claim(store, index)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [Impatient, Deaf, Remembers, Timid])
def test_what_is_wrong_is_found_out(machine: type[ReceiptsMachine]) -> None:
    """So it does a lot: a machine that claims, loses and completes little would find none."""
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=caught)
