"""Looks run one after the other or in threads, in order, as the file system's speed asks."""

import functools
import threading
import time
import types

import pytest

from shardproof._base import fanout
from shardproof._base.work import Cancelled, apart, go_on


class Slow:
    """Work that notes which thread did it, and waits for the items that are said to be slow."""

    def __init__(self, is_slow=lambda _item: False) -> None:
        self.is_slow = is_slow
        self.threads: dict[int, str] = {}

    def __call__(self, items) -> list[int]:
        for item in items:
            if self.is_slow(item):
                time.sleep(0.001)
            self.threads[item] = threading.current_thread().name
        return list(items)

    @property
    def n_threads(self) -> int:
        return len({name for name in self.threads.values() if name.startswith("shardproof")})


def run(work, items, threads=None) -> list[int]:
    runs = apart(lambda _: list(fanout.over_threads(work, items, threads)))
    assert sum(n_items for n_items, _ in runs) == len(items)
    return [result for _, results in runs for result in results]


@pytest.mark.parametrize("n_items", [0, 1, 8, 9, 1031, 5000])
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_every_item_is_done_once_and_in_order(n_items: int, threads: int | None) -> None:
    work = Slow()
    assert run(work, range(n_items), threads) == list(range(n_items))
    assert threads or work.n_threads == 0  # fast work stays in the caller's thread


def test_slow_work_goes_to_threads() -> None:
    work = Slow(lambda _item: True)
    run(work, range(500))
    here = [item for item, name in work.threads.items() if not name.startswith("shardproof")]
    assert len(here) <= fanout._SAMPLE
    assert work.n_threads > 16


@pytest.mark.parametrize("computed", [0, 1])
def test_what_counts_is_how_long_looks_wait(monkeypatch, computed: int) -> None:
    """Of looks that compute, threads would only wait for each other."""
    clocks = {"perf_counter": 0.0, "thread_time": 0.0}

    def pass_time(_item: int) -> bool:
        clocks["perf_counter"] += 3 * fanout.SLOW_SECONDS
        clocks["thread_time"] += 3 * fanout.SLOW_SECONDS * computed
        return False

    stand_ins = {name: functools.partial(clocks.__getitem__, name) for name in clocks}
    monkeypatch.setattr(fanout, "time", types.SimpleNamespace(**stand_ins))
    work = Slow(pass_time)
    run(work, range(500))
    assert (work.n_threads == 0) == bool(computed)


def test_work_that_turns_slow_half_way_goes_to_threads() -> None:
    work = Slow(lambda item: item >= 2000)
    assert run(work, range(6000)) == list(range(6000))
    last = [work.threads[item] for item in range(4000, 6000)]
    assert sum(name.startswith("shardproof") for name in last) > 1500


def test_a_slow_moment_sends_few_to_threads() -> None:
    """Where looks are fast, threads take five times as long."""
    work = Slow(lambda item: item < 10)
    assert run(work, range(20_000)) == list(range(20_000))
    assert sum(name.startswith("shardproof") for name in work.threads.values()) <= 1024
    work = Slow(lambda _item: True)
    run(work, range(20_000))
    assert sum(name.startswith("shardproof") for name in work.threads.values()) > 19_900


def test_workers_are_used_as_given() -> None:
    work = Slow(lambda _item: True)
    run(work, range(100), threads=3)
    assert work.n_threads == 3


def test_in_the_main_thread_there_is_no_pool_whose_locks_an_interrupt_could_break() -> None:
    work = Slow(lambda _item: True)
    runs = list(fanout.over_threads(work, range(100), 3))
    assert [result for _, results in runs for result in results] == list(range(100))
    assert set(work.threads.values()) == {threading.current_thread().name}


def test_a_thread_takes_at_once_what_keeps_it_for_a_moment() -> None:
    sizes = []

    def work(items) -> list[int]:
        sizes.append(len(items))
        time.sleep(0.02 * len(items))
        return []

    run(work, range(300))
    assert max(sizes) <= fanout._CHUNK_SECONDS / 0.02
    sizes.clear()
    run(work, range(12), threads=2)
    assert sizes == [3, 3, 3, 3]  # a fair share, half of it at a time
    sizes.clear()
    apart(lambda _: list(fanout.over_threads(work, range(6), 2, chunk=1)))
    assert sizes == [1] * 6


def test_an_error_ends_the_work_and_its_threads() -> None:
    before, done = threading.active_count(), []

    def fail(items):
        done.extend(items)
        time.sleep(0.001)
        if 300 in items:
            raise RuntimeError("300")
        return []

    with pytest.raises(RuntimeError, match="300"):
        run(fail, range(20_000), threads=2)
    assert threading.active_count() == before
    assert len(done) < 20_000


def test_an_abandoned_run_stops_what_was_begun_and_leaves_no_thread() -> None:
    stopped = []

    def work(items) -> list[int]:
        while items[0]:
            try:
                go_on()
            except Cancelled:
                stopped.append(items[0])
                raise
        return []

    def abandon(_: object) -> None:
        runs = fanout.over_threads(work, range(20_000), 4)
        next(runs)
        runs.close()

    before = threading.active_count()
    apart(abandon)
    assert threading.active_count() == before
    assert 0 < len(stopped) <= 4


def test_what_is_begun_ahead_is_bounded() -> None:
    taken = []

    def results(_: object) -> list[int]:
        items = (taken.append(n) or n for n in range(5000))
        found = fanout.in_threads(abs, items, n_threads=2, name="test")
        first = next(found)
        assert len(taken) == fanout._MOST_BEGUN
        return [first, *found]

    assert apart(results) == list(range(5000))


@pytest.mark.parametrize("where", [0, 7])
def test_an_error_tells_the_rest_to_stop(where: int) -> None:
    stop = threading.Event()

    def work(number: int) -> None:
        if number == where:
            raise RuntimeError(f"{number}")

    runs = fanout.in_threads(work, range(10), n_threads=2, name="test", stop=stop)
    with pytest.raises(RuntimeError, match=f"{where}"):
        apart(lambda _: list(runs))
    assert stop.is_set()


@pytest.mark.parametrize(
    ("soft", "threads"), [(16, 4), (1, 1), (128, 32), (1024, 64), (10**6, 64), (-1, 64)]
)
def test_threads_fit_into_the_limit_of_descriptors(monkeypatch, soft: int, threads: int) -> None:
    monkeypatch.setattr(fanout.resource, "getrlimit", lambda _which: (soft, soft))
    assert fanout.max_threads() == threads


def test_available_cpus_are_those_of_the_affinity_mask_and_all_without_one(monkeypatch) -> None:
    monkeypatch.setattr(fanout.os, "sched_getaffinity", lambda _pid: {0, 3, 5}, raising=False)
    assert fanout.available_cpus() == 3
    monkeypatch.delattr(fanout.os, "sched_getaffinity")
    monkeypatch.setattr(fanout.os, "cpu_count", lambda: 7)
    assert fanout.available_cpus() == 7
