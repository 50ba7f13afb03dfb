"""A call fails, or Ctrl-C comes: a worker has its claim and knows it, or another may have it."""

import contextlib
import errno
import os
import sys
import threading
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

N_CASES = 30

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
    def __init__(self, path: Path, kind: str) -> None:
        self.store = ReceiptStore(path, heartbeat=1000.0, stale_after=3000.0)
        self.kind = kind
        self.work: Any = None

    def go(self) -> None:
        with contextlib.suppress(ZeroDivisionError):
            self.work = self.store.claim(0)
            with self.work as work:
                work.output_path("x.bin", kind="data").write_bytes(b"1234")
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


def fail_each(store: ReceiptStore, tally: Tally) -> None:
    cases = []
    for kind in KINDS:
        reset(store)
        with FileSystemFaults(store.path) as fs:
            Worker(store.path, kind).go()
        cases += [(kind, n, at) for at in range(1, len(fs.calls) + 1) for n in NUMBERS]
    for kind, number, at in tally.each(cases, N_CASES):
        reset(store)
        worker = Worker(store.path, kind)
        with FileSystemFaults(store.path) as fs:
            fault = fs.fail("any", number, nth=at, times=1, optional=True)
            ended = run(worker)
        if fault.reached:  # as many calls are not made in each run
            tally.count()
            judge(tally, worker, (kind, errno.errorcode[number], at), ended)


WATCHED = {module.__file__ for module in (files, holds, opening, liveness, _claims)}
WATCHED |= {module.__file__ for module in (_claimed_shard, _workspace)}
WATCHED |= {receipts.ReceiptStore.claim.__wrapped__.__code__.co_filename}


class Lines:
    def __init__(self, at: int = 0) -> None:
        self.n, self.at, self.where = 0, at, ""

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            self.n += 1
            if self.n == self.at:
                self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._trace

    def __enter__(self) -> "Lines":
        assert threading.current_thread() is threading.main_thread()
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


def interrupt_each(store: ReceiptStore, tally: Tally) -> None:
    cases = []
    for kind in KINDS:
        reset(store)
        with Lines() as lines:
            Worker(store.path, kind).go()
        assert lines.n > 200
        cases += [(kind, at) for at in range(1, lines.n + 1)]
    for kind, at in tally.each(cases, N_CASES):
        reset(store)
        worker = Worker(store.path, kind)
        with Lines(at) as lines:
            ended = run(worker)
        tally.count()
        judge(tally, worker, (kind, at, lines.where), ended)


# An interrupt may come between the opening of a file and its `with`: Python closes it then.
each_way = pytest.mark.parametrize(
    "disturb",
    [
        fail_each,
        pytest.param(
            interrupt_each,
            marks=pytest.mark.filterwarnings(
                "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
            ),
        ),
    ],
)


@pytest.mark.attack("a call fails or is interrupted: claims")
@each_way
def test_a_worker_has_its_claim_and_knows_it_or_another_may_have_it(disturb, store, tally) -> None:
    disturb(store, tally)


@pytest.mark.control("leftover")
@each_way
def test_a_claim_that_is_not_given_back_is_seen(disturb, store, tally, monkeypatch) -> None:
    monkeypatch.setattr(_claims.Claim, "give_back", lambda _: None)
    disturb(store, tally)
