"""The machine agrees with a right store of receipts, and with no other."""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from shardproof import ReceiptStore
from shardproof.testing.contracts.stateful import ReceiptsMachine
from tests.helpers.naive_receipts import NaiveMachine, NaiveStore, NaiveWork

runs = settings(max_examples=30, stateful_step_count=40, deadline=None, derandomize=True)
# A bug is found out when it is found: how little of a run shows it is Hypothesis' own work.
caught = settings(runs, max_examples=300, phases=[Phase.generate], print_blob=False, database=None)


ACTUALLY = time.time


class Watched(ReceiptsMachine):
    """Counts what happens, so that a machine that does nothing can't pass."""

    seen: ClassVar[Counter[str]] = Counter()

    def claim(self, store: Any, index: int) -> Any:
        work = super().claim(store, index)
        self.seen["refused" if work is None else "claimed"] += 1
        return work

    def begin(self, work: Any) -> bool:
        is_begun = super().begin(work)
        self.seen["lost before it began"] += not is_begun
        return is_begun

    def complete(self, work: Any) -> bool:
        is_completed = super().complete(work)
        self.seen["completed" if is_completed else "lost"] += 1
        return is_completed

    def fail(self, work: Any, error: BaseException) -> None:
        self.seen[type(error).__name__] += 1
        super().fail(work, error)

    def crash(self, work: Any) -> None:
        self.seen["crashed"] += 1
        super().crash(work)

    def pending(self, store: Any) -> list[int]:
        self.seen["in three plans"] += len(self._plans) == 3
        self.seen["another time"] += abs(time.time() - ACTUALLY()) > 3600
        return super().pending(store)


@pytest.mark.once
def test_our_store_does_what_the_model_does() -> None:
    Watched.seen.clear()
    run_state_machine_as_test(Watched, settings=runs)
    often = {"refused", "claimed", "completed", "crashed", "ValueError", "KeyboardInterrupt"}
    assert not [what for what in often if Watched.seen[what] < 10], Watched.seen
    assert min(Watched.seen["lost"], Watched.seen["lost before it began"]) > 2, Watched.seen
    assert Watched.seen["in three plans"] > 10
    assert Watched.seen["another time"] > 10


@pytest.mark.once
def test_so_does_a_store_of_another_kind() -> None:
    run_state_machine_as_test(NaiveMachine, settings=settings(runs, max_examples=50))


def test_nothing_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    now = time.time
    run_state_machine_as_test(NaiveMachine, settings=settings(runs, max_examples=5))
    assert os.listdir(tmp_path) == []
    assert time.time is now


class BelievesReceipts(NaiveStore):
    """Does not look at the outputs."""

    def is_there(self, sizes: dict[str, int] | None) -> bool:
        return bool(sizes)


class CountsFiles(NaiveStore):
    """Does not look at their sizes."""

    def is_there(self, sizes: dict[str, int] | None) -> bool:
        return bool(sizes) and all((self.path / name).exists() for name in sizes)


class TakesStartedForDone(NaiveStore):
    def is_completed(self, index: int) -> bool:
        return self.receipt(index).get("status") == "started" or super().is_completed(index)


class TakesWhatIsThereForDone(NaiveStore):
    """Does not look at receipts."""

    def is_completed(self, index: int) -> bool:
        return (self.path / f"shard_{index:06}.bin").exists()


class Remembers(NaiveStore):
    """What is done stays done."""

    def is_completed(self, index: int) -> bool:
        self.done = getattr(self, "done", set())
        if super().is_completed(index):
            self.done.add(index)
        return index in self.done


class TripsOverJunk(NaiveStore):
    """Expects an object in each receipt that is JSON."""

    def receipt(self, index: int) -> Any:
        try:
            return json.loads((self.path / f"{index}.receipt").read_text())
        except (OSError, ValueError):
            return {}


class StealsAtOnce(NaiveStore):
    def may_take_over(self, index: int, token: str) -> bool:
        return True


class NeverTakesOver(NaiveStore):
    def may_take_over(self, index: int, token: str) -> bool:
        return False


class MistakesWhomItMet(NaiveStore):
    """Holds the age of one claim against the next."""

    def may_take_over(self, index: int, token: str) -> bool:
        return super().may_take_over(index, "somebody")


class GoesByTheWallClock(NaiveStore):
    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        super().__init__(path, lambda: clock() + time.time() - ACTUALLY())


def whose(work: type[NaiveWork]) -> type[NaiveStore]:
    """A store that is right, and whose workers are not."""

    class Store(NaiveStore):
        def work(self, index: int) -> NaiveWork:
            return work(self, index)

    Store.__name__ = work.__name__
    return Store


class BeginsAnyway(NaiveWork):
    """Writes that it started over what another worker completed since the claim."""

    def begin(self) -> bool:
        self.record(status="started", sizes={})
        return True


class CompletesAnyway(NaiveWork):
    """Does not ask whether the claim still holds."""

    def complete(self) -> bool:
        self.publish()
        return True


class CompletesInSilence(CompletesAnyway):
    """Knows that it lost, says so, and has published its outputs before it looked."""

    def complete(self) -> bool:
        for name in self.names:
            shutil.copy(self.place(name), self.store.path / name)
        return self.holds() and super().complete()


class WritesInPlace(NaiveWork):
    def place(self, name: str) -> Path:
        return self.store.path / name


class FailsForOthers(NaiveWork):
    """Records that it failed, though another worker has the shard, or has done it."""

    def fail(self) -> None:
        self.record(status="failed")
        self.file.unlink(missing_ok=True)


class KeepsWhatFailed(NaiveWork):
    """The claim stays, as of a worker that died."""

    def fail(self) -> None:
        if self.holds():
            self.record(status="failed")


BUGS = [
    BelievesReceipts,
    CountsFiles,
    TakesStartedForDone,
    TakesWhatIsThereForDone,
    Remembers,
    TripsOverJunk,
    StealsAtOnce,
    NeverTakesOver,
    MistakesWhomItMet,
    GoesByTheWallClock,
    *map(whose, [BeginsAnyway, CompletesAnyway, CompletesInSilence, WritesInPlace]),
    *map(whose, [FailsForOthers, KeepsWhatFailed]),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_wrong_store_is_found_out(bug: type[NaiveStore]) -> None:
    class Machine(NaiveMachine):
        store = bug

    with pytest.raises(AttributeError if bug is TripsOverJunk else AssertionError):
        run_state_machine_as_test(Machine, settings=caught)


class Impatient(ReceiptsMachine):
    """Our own store with a clock that runs wild."""

    def open_store(self, path: Path, clock: Callable[[], float]) -> ReceiptStore:
        jumps = iter(range(10**9))
        return super().open_store(path, lambda: clock() + 10.0 * self.stale_after * next(jumps))


class Deaf(ReceiptsMachine):
    """Our own store, asked by somebody who does not listen when the claim is lost."""

    def complete(self, work: Any) -> bool:
        super().complete(work)
        return True


@pytest.mark.parametrize("machine", [Impatient, Deaf])
def test_a_wrong_use_of_our_store_is_found_out(machine: type[ReceiptsMachine]) -> None:
    with pytest.raises(AssertionError, match=r"claimed\? expected False|claim lost\? True"):
        run_state_machine_as_test(machine, settings=caught)
