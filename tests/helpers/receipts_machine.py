"""A data-prep run that lives: workers claim shards, die, come too late, and all that is checked."""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shardproof import ClaimLostError, ReceiptStore, ShardClaimedError, ShardCompletedError
from shardproof.testing import Layout, write_layout
from tests.helpers.hand_clock import HandClock

STALE_AFTER = 36_000.0
_MAX_PLANS = 3
_PLACES = st.integers(0, 11)  # modulo how many there are
_DAYS = st.sampled_from([0, 1, -1])
_SHARES = st.sampled_from([1.1, 0.9, 0.0])
_ERRORS = st.sampled_from([None, ValueError, KeyboardInterrupt])
_NO_RECEIPTS = (b"", b"{", b"null", b"[]", b'{"status": "completed"}', b"\0" * 100)


@dataclasses.dataclass(eq=False)
class _ModelPlan:
    """What a plan directory must look like."""

    path: Path
    n_shards: int
    onlooker: Any
    """A store that is opened once, and looks after every step: it must not remember."""
    done: dict[int, dict[str, bytes]] = dataclasses.field(default_factory=dict)
    holders: dict[int, "_ModelWork"] = dataclasses.field(default_factory=dict)

    @property
    def pending(self) -> list[int]:
        return [index for index in range(self.n_shards) if index not in self.done]

    @property
    def free(self) -> list[int]:
        return [index for index in self.pending if index not in self.holders]


@dataclasses.dataclass(eq=False)
class _ModelWorker:
    """One process: it has opened the store once."""

    plan: _ModelPlan
    store: Any
    seen: dict[int, tuple["_ModelWork", float]] = dataclasses.field(default_factory=dict)
    """Whose claim it was refused for, and when it met that claim first."""

    def may_claim(self, index: int, now: float, stale_after: float) -> bool:
        """Whether an attempt must succeed; one that must not is remembered, as the store does."""
        if index in self.plan.done:
            return False
        if (holder := self.plan.holders.get(index)) is None:
            return True
        seen, since = self.seen.get(index, (None, 0.0))
        if seen is not holder:
            self.seen[index] = holder, now
            return False
        return now - since >= stale_after


@dataclasses.dataclass(eq=False)
class _ModelWork:
    """What one worker does for one shard; two works never write the same bytes."""

    worker: _ModelWorker
    index: int
    handle: Any
    outputs: dict[str, bytes]
    is_begun: bool = False
    is_written: bool = False

    @property
    def is_lost(self) -> bool:
        """Whether another worker took the shard over, done or not."""
        return self.worker.plan.holders.get(self.index) is not self


class ReceiptsMachine(RuleBasedStateMachine):
    """Runs workers on a plan directory, and holds what the store says against a model."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._clock, self._days_off = HandClock(), 0
        self._n_works = 0
        self._base = Path()
        self._plans: dict[int, _ModelPlan] = {}
        self._plan: _ModelPlan
        self._workers: list[_ModelWorker] = []
        self._works: list[_ModelWork] = []

    @initialize(n_shards=st.integers(1, 3))
    def make_first_plan(self, n_shards: int) -> None:
        """Begin with a plan of which nothing is done, and a clock that is not the machine's."""
        base = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="shardproof-"))
        self._base = Path(base)
        seconds, ns = time.time, time.time_ns
        wall_clock = {
            "time": lambda: seconds() + 86_400 * self._days_off,
            "time_ns": lambda: ns() + 86_400 * 10**9 * self._days_off,
        }
        self._stack.enter_context(mock.patch.multiple(time, **wall_clock))
        self._open_plan(n_shards, seed=0)

    def _open_plan(self, n_shards: int, seed: int) -> None:
        value = Layout(n_shards, format="receipts", seed=seed, absent=range(n_shards))
        path = write_layout(value, self._base / value.folder)
        self._plan = _ModelPlan(path, n_shards, self.open_store(path, self._clock))
        self._plans[seed] = self._plan

    @rule(which=_PLACES, place=_PLACES)
    def claim_one(self, which: int, place: int) -> None:
        known = [None, *(worker for worker in self._workers if worker.plan is self._plan)]
        worker = known[which % len(known)]
        index = place % self._plan.n_shards
        busy = any(work.worker is worker and work.index == index for work in self._works)
        self._try_claim(self._new_worker() if worker is None or busy else worker, index)

    @precondition(lambda self: self._plan.pending)
    @rule(place=_PLACES, share=_SHARES, days=_DAYS)
    def take_over(self, place: int, share: float, days: int) -> None:
        """Let a new worker meet a claim, wait, and take the shard over; if not too soon."""
        index = self._plan.pending[place % len(self._plan.pending)]
        if index not in self._plan.holders:
            self._try_claim(self._new_worker(), index)
        self._meet_twice(index, share, days)

    @precondition(lambda self: self._works or self._plan.free)
    @rule(place=_PLACES, far=st.integers(0, 2), first=st.booleans(), error=_ERRORS)
    def come_late(self, place, far, first, error) -> None:
        """Let a worker end after it was taken over: before the other has completed, or after."""
        late = self._some_work(place)
        if not late.is_lost:
            for step in (self._begin, self._write)[:far]:
                step(late)
            self._plan = late.worker.plan
            self._meet_twice(late.index, 1.1, 0)
            if not first:
                self._end(self._works[-1], None)
        self._end(late, error)

    def _meet_twice(self, index: int, share: float, days: int) -> None:
        worker = self._new_worker()
        self._try_claim(worker, index)
        self.let_time_pass(share, days)
        self._try_claim(worker, index)

    @rule(share=_SHARES, days=_DAYS)
    def let_time_pass(self, share: float, days: int) -> None:
        """Let no worker show life for a while; and the wall clock jump, which decides nothing."""
        self._clock.now += share * STALE_AFTER
        self._days_off = days

    def _some_work(self, place: int) -> _ModelWork:
        if not self._works:
            free = self._plan.free
            self._try_claim(self._new_worker(), free[place % len(free)])
        return self._works[place % len(self._works)]

    def _new_worker(self) -> _ModelWorker:
        worker = _ModelWorker(self._plan, self.open_store(self._plan.path, self._clock))
        self._workers.append(worker)
        return worker

    def _try_claim(self, worker: _ModelWorker, index: int) -> None:
        expected = worker.may_claim(index, self._clock.now, STALE_AFTER)
        handle = self.claim(worker.store, index)
        assert (handle is not None) == expected, f"shard {index}: claimed? expected {expected}"
        if expected:
            self._n_works += 1
            names = (f"shard_{index:06}.{suffix}" for suffix in ("bin", "idx"))
            outputs = {name: f"{name} {self._n_works:08}".encode() for name in names}
            work = _ModelWork(worker, index, handle, outputs)
            worker.plan.holders[index] = work
            self._works.append(work)

    @precondition(lambda self: self._works or self._plan.free)
    @rule(place=_PLACES)
    def write_outputs(self, place: int) -> None:
        self._write(self._some_work(place))

    def _write(self, work: _ModelWork) -> bool:
        """Begin and write, unless that was done; return False if the claim is known to be lost."""
        if not self._begin(work):
            return False
        # A directory that was taken away is one of the ways to learn that the claim was lost.
        with contextlib.suppress(Exception) if work.is_lost else contextlib.nullcontext():
            for name, content in () if work.is_written else work.outputs.items():
                work.handle.output_path(name).write_bytes(content)
        work.is_written = True
        return True

    def _begin(self, work: _ModelWork) -> bool:
        is_lost = work.is_lost
        try:
            if not work.is_begun:
                work.handle.__enter__()
            work.is_begun = True
        except ClaimLostError:
            assert is_lost, f"shard {work.index}: expected that the claim holds"
            self._works.remove(work)
        return work.is_begun

    @precondition(lambda self: self._works or self._plan.free)
    @rule(place=_PLACES, error=_ERRORS)
    def end_work(self, place: int, error: type[BaseException] | None) -> None:
        """Let a worker complete, fail, or be interrupted: then the shard is free at once."""
        self._end(self._some_work(place), error)

    def _end(self, work: _ModelWork, error: type[BaseException] | None) -> None:
        """End work; if it lost its claim, it must learn so, and nothing of it counts."""
        is_lost = work.is_lost
        if not self._write(work):
            return
        if error is not None:
            work.handle.__exit__(error, error("a reason"), None)
        elif self.complete(work.handle) == is_lost:
            raise AssertionError(f"shard {work.index}: completed, and its claim lost? {is_lost}")
        self._works.remove(work)
        if not is_lost:
            del work.worker.plan.holders[work.index]
            if error is None:
                work.worker.plan.done[work.index] = work.outputs

    @precondition(lambda self: self._works or self._plan.free)
    @rule(place=_PLACES, halfway=st.booleans())
    def crash_worker(self, place: int, halfway: bool) -> None:
        """Kill a worker with all that it works on, perhaps while it writes."""
        victim = self._some_work(place)
        if halfway and not victim.is_written and not victim.is_lost:
            self._begin(victim)
            name, content = next(iter(victim.outputs.items()))
            victim.handle.output_path(name).write_bytes(content[:3])
        for work in [work for work in self._works if work.worker is victim.worker]:
            work.handle.abandon()  # on disk all stays as it is, and no sign of life comes
            self._works.remove(work)
        self._workers.remove(victim.worker)

    @rule(seed=st.integers(0, 8))
    def replan(self, seed: int) -> None:
        seed %= _MAX_PLANS
        if seed in self._plans:
            self._plan = self._plans[seed]
        else:
            self._open_plan(self._plan.n_shards, seed)

    @precondition(lambda self: self._plan.done)
    @rule(place=_PLACES, which=_PLACES, length=st.sampled_from([None, 0, 3]))
    def purge(self, place: int, which: int, length: int | None) -> None:
        """Remove an output of a shard that is done, or cut it."""
        index = sorted(self._plan.done)[place % len(self._plan.done)]
        names = list(self._plan.done.pop(index))
        path = self._plan.path / names[which % len(names)]
        if length is None:
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:length])

    @rule(place=_PLACES, text=st.sampled_from(_NO_RECEIPTS))
    def corrupt(self, place: int, text: bytes) -> None:
        """Let a power cut spoil a receipt, or the next one that is written there."""
        index = place % self._plan.n_shards
        receipt = self._plan.path / "receipts" / f"shard_{index:06}.json"
        receipt.parent.mkdir(parents=True, exist_ok=True)
        receipt.write_bytes(text)
        self._plan.done.pop(index, None)

    @invariant()
    def says_what_is_so(self) -> None:
        """Nothing is skipped that is not done, and nothing is done twice."""
        for plan in self._plans.values():
            for store in (plan.onlooker, self.open_store(plan.path, self._clock)):
                assert list(self.pending(store)) == plan.pending
            for index in range(plan.n_shards):
                assert plan.onlooker.is_completed(index) == (index in plan.done)

    @invariant()
    def outputs_are_those_of_one_worker(self) -> None:
        for plan in self._plans.values():
            for outputs in plan.done.values():
                for name, content in outputs.items():
                    found = (plan.path / name).read_bytes()
                    assert found == content, f"{name}: expected {content!r}"

    # How the store is worked; a test overrides some to see that it is found out.

    def open_store(self, path: Path, clock: Callable[[], float]) -> Any:
        heartbeat = STALE_AFTER / 3  # no thread gets to show life within the test
        return ReceiptStore(path, heartbeat=heartbeat, stale_after=STALE_AFTER, _clock=clock)

    def pending(self, store: Any) -> Sequence[int]:
        pending: Sequence[int] = store.pending()
        return pending

    def claim(self, store: Any, index: int) -> Any:
        """Claim a shard; return what the methods below take, or None if refused."""
        try:
            return store.claim(index)
        except (ShardClaimedError, ShardCompletedError):
            return None

    def complete(self, work: Any) -> bool:
        """End the work as completed; return False if the claim was found to be lost."""
        try:
            work.__exit__(None, None, None)
        except ClaimLostError:
            return False
        return True

    def teardown(self) -> None:
        for work in self._works:
            work.handle.abandon()
        self._stack.close()
        super().teardown()
