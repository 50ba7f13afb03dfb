"""A call fails, or Ctrl-C comes: a worker has its claim and knows it, or another may have it."""

import contextlib
import errno
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from shardproof import ReceiptStore, receipts
from shardproof._base import files, holds, liveness, opening
from shardproof.errors import ShardClaimedError, ShardCompletedError
from shardproof.receipts import _claimed_shard, _claims, _workspace
from shardproof.testing.faults import FileSystemFaults
from tests.attacks.tally import Tally
from tests.helpers.planning import new_store

attack = pytest.mark.attack("a call fails or is interrupted: claims")

N_CASES = 30
"""In the gate, of each kind."""

NUMBERS = errno.EIO, errno.ESTALE, errno.EACCES, errno.EMFILE
KINDS = "complete", "fail"


@pytest.fixture
def store(tmp_path, monkeypatch) -> ReceiptStore:
    monkeypatch.setattr(files, "sync", lambda _: None)  # nobody waits for a disk, nor looks at one
    return new_store(tmp_path / "run", 2, heartbeat=1000.0, stale_after=3000.0)


def reset(store: ReceiptStore) -> None:
    for directory in ("claims", "receipts"):
        for path in (store.path / directory).glob("*"):
            files.remove_tree(path) if path.is_dir() else path.unlink()
    for path in store.path.glob("*.bin"):
        path.unlink()


class Worker:
    """Claims shard 0 and does it; keeps the work in mind while it has it."""

    def __init__(self, path: Path, kind: str) -> None:
        self.store = ReceiptStore(path, heartbeat=1000.0, stale_after=3000.0)
        self.kind = kind
        self.work: Any = None

    def go(self) -> None:
        with contextlib.suppress(ZeroDivisionError):
            self.work = self.store.claim(0)
            with self.work as work:
                work.output("x.bin", kind="data").write_bytes(b"1234")
                if self.kind == "fail":
                    raise ZeroDivisionError


def judge(tally: Tally, worker: Worker, case: object, ended: BaseException | None) -> None:
    """After whatever came: the worker can give the shard back, or another may have it at once."""
    if worker.work is not None:
        worker.work.close()  # it knows that it has it, or gave it back already
    is_right = (worker.store.path / "x.bin").exists()
    try:
        other = ReceiptStore(worker.store.path).claim(0)
    except ShardClaimedError as error:
        tally.harm("leftover", f"{case}: {ended!r}, and {error}")
    except ShardCompletedError:
        if not is_right or worker.kind == "fail":
            tally.harm("lie", f"{case}: {ended!r}, and it is called completed")
    else:
        if ended is None and worker.kind == "complete":
            tally.harm("lost", f"{case}: it ended well, and is not done")
        other.close()
    left = [name for name in os.listdir(worker.store.path / "claims") if ".tmp" not in name]
    if left:
        tally.harm("leftover", f"{case}: {ended!r}, and {left}")


def run(worker: Worker) -> BaseException | None:
    try:
        worker.go()
    except (OSError, KeyboardInterrupt) as error:
        return error
    return None


def n_calls(store: ReceiptStore, kind: str) -> int:
    with FileSystemFaults(store.path) as fs:
        Worker(store.path, kind).go()
        return len(fs.calls)


def fail_each(store: ReceiptStore, tally: Tally, *, n_harms: float = math.inf) -> None:
    """Let each call fail once, until there were so many harms."""
    cases = []
    for kind in KINDS:
        reset(store)
        cases += [(kind, n, at) for at in range(1, n_calls(store, kind) + 1) for n in NUMBERS]
    for kind, number, at in tally.sample(cases, N_CASES):
        if tally.harms.total() >= n_harms:
            break
        reset(store)
        worker = Worker(store.path, kind)
        with FileSystemFaults(store.path) as fs:
            fault = fs.fail("any", number, nth=at, times=1, optional=True)
            ended = run(worker)
        if fault.reached:  # as many calls are not made in each run
            tally.count()
            judge(tally, worker, (kind, errno.errorcode[number], at), ended)


@attack
def test_a_call_that_fails_once(store, tally) -> None:
    fail_each(store, tally)


def test_a_claim_that_fails_after_it_was_made(store, monkeypatch) -> None:
    """Control: as it was, a claim that was made and can't be opened then stays."""
    monkeypatch.setattr(_claims.Claim, "give_back", lambda _: None)
    control = Tally("control", is_exhaustive=True)
    fail_each(store, control, n_harms=1)
    assert control.harms["leftover"]


WATCHED = {module.__file__ for module in (files, holds, opening, liveness, _claims)}
WATCHED |= {module.__file__ for module in (_claimed_shard, _workspace)}
WATCHED |= {receipts.ReceiptStore.claim.__wrapped__.__code__.co_filename}


@contextlib.contextmanager
def interrupted(at: int) -> Iterator[list[str]]:
    """Raise KeyboardInterrupt at one line of ours that the main thread comes to; say at which."""
    lines = 0
    where: list[str] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            lines += 1
            if lines == at:
                name = os.path.basename(frame.f_code.co_filename)
                where.append(f"{name}:{frame.f_lineno}")
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    assert threading.current_thread() is threading.main_thread()
    sys.settrace(trace)
    try:
        yield where
    finally:
        sys.settrace(before)


def n_lines(act: Callable[[], object]) -> int:
    """How many lines of ours there are to be interrupted at."""
    lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in WATCHED:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return lines


def interrupt_each(store: ReceiptStore, tally: Tally, *, n_harms: float = math.inf) -> None:
    """Interrupt a worker at each line, until there were so many harms."""
    cases = []
    for kind in KINDS:
        reset(store)
        n = n_lines(Worker(store.path, kind).go)
        assert n > 200
        cases += [(kind, at) for at in range(1, n + 1)]
    for kind, at in tally.sample(cases, N_CASES):
        if tally.harms.total() >= n_harms:
            break
        reset(store)
        worker = Worker(store.path, kind)
        with interrupted(at) as where:
            ended = run(worker)
        tally.count()
        judge(tally, worker, (kind, at, where), ended)


# An interrupt may come between the opening of a file and its `with`: Python closes it then.
warns_of_files = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@attack
@warns_of_files
def test_an_interrupt(store, tally) -> None:
    interrupt_each(store, tally)


@warns_of_files
def test_a_claim_that_is_not_withdrawn(store, monkeypatch) -> None:
    """Control: as it was, a claim whose link was made before the interrupt stays."""
    monkeypatch.setattr(_claims.Claim, "give_back", lambda _: None)
    control = Tally("control", is_exhaustive=True)
    interrupt_each(store, control, n_harms=1)
    assert control.harms["leftover"]
