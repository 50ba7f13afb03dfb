"""Looks run one after the other or in threads, in order, as the file system's speed asks."""

import functools
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardproof._base import fanout


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


def run(work, items, threads=None) -> list[int]:
    runs = list(fanout.over_threads(work, items, threads))
    assert sum(n_items for n_items, _ in runs) == len(items)
    return [result for _, results in runs for result in results]


@pytest.mark.parametrize("n_items", [0, 1, 7, 8, 9, 1031, 1032, 1033, 5000])
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_every_item_is_done_once_and_in_order(n_items: int, threads: int | None) -> None:
    assert run(Slow(), range(n_items), threads) == list(range(n_items))


def test_fast_work_stays_in_the_callers_thread() -> None:
    work = Slow()
    run(work, range(5000))
    assert set(work.threads.values()) == {threading.current_thread().name}


def test_slow_work_goes_to_threads() -> None:
    work = Slow(lambda _item: True)
    run(work, range(500))
    here = [item for item, name in work.threads.items() if not name.startswith("shardproof")]
    assert len(here) <= fanout._SAMPLE
    assert len(set(work.threads.values())) > 16


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
    here = threading.current_thread().name
    assert (set(work.threads.values()) == {here}) == bool(computed)


def test_one_slow_look_is_no_slow_file_system() -> None:
    work = Slow(lambda item: item == 0)
    run(work, range(500))
    assert set(work.threads.values()) == {threading.current_thread().name}


def test_work_that_turns_slow_half_way_goes_to_threads() -> None:
    work = Slow(lambda item: item >= 2000)
    assert run(work, range(6000)) == list(range(6000))
    last = [work.threads[item] for item in range(4000, 6000)]
    assert sum(name.startswith("shardproof") for name in last) > 1500


def test_one_worker_means_one() -> None:
    work = Slow(lambda _item: True)
    run(work, range(100), threads=1)
    assert set(work.threads.values()) == {threading.current_thread().name}


def test_workers_are_used_as_given() -> None:
    work = Slow(lambda _item: True)
    run(work, range(100), threads=3)
    names = set(work.threads.values())
    assert len(names) == 3
    assert all(name.startswith("shardproof") for name in names)


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
    list(fanout.over_threads(work, range(6), 2, chunk=1))
    assert sizes == [1] * 6


@pytest.mark.parametrize("threads", [None, 4])
def test_threads_end_with_the_work(threads: int | None) -> None:
    before = threading.active_count()
    run(Slow(lambda _item: True), range(200), threads)
    assert threading.active_count() == before


def test_all_runs_share_their_threads() -> None:
    before = threading.active_count()
    seen = set()

    def work(_items) -> list[int]:
        seen.add(threading.current_thread())
        return []

    run(work, range(3 * fanout._THREADED_RUN), threads=2)
    assert len(seen) <= 2
    assert threading.active_count() == before


def test_an_error_ends_the_work_and_its_threads() -> None:
    before = threading.active_count()
    done = []

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


def test_an_abandoned_run_leaves_no_thread() -> None:
    before = threading.active_count()
    runs = fanout.over_threads(Slow(lambda _item: True), range(20_000), 4)
    next(runs)
    runs.close()
    assert threading.active_count() == before


def test_a_given_executor() -> None:
    with ThreadPoolExecutor(2, "given") as executor:
        work = Slow()
        runs = list(fanout.over_executor(work, range(1000), executor))
    assert [result for _, results in runs for result in results] == list(range(1000))
    assert sum(n_items for n_items, _ in runs) == 1000
    assert all(name.startswith("given") for name in work.threads.values())


@pytest.mark.parametrize(
    ("soft", "threads"), [(16, 4), (1, 1), (128, 32), (1024, 64), (10**6, 64), (-1, 64)]
)
def test_threads_fit_into_the_limit_of_descriptors(monkeypatch, soft: int, threads: int) -> None:
    monkeypatch.setattr(fanout.resource, "getrlimit", lambda _which: (soft, soft))
    assert fanout.max_threads() == threads


def test_available_cpus_are_those_of_the_affinity_mask(monkeypatch) -> None:
    monkeypatch.setattr(fanout.os, "sched_getaffinity", lambda _pid: {0, 3, 5})
    assert fanout.available_cpus() == 3


def test_available_cpus_are_all_where_there_is_no_affinity_mask(monkeypatch) -> None:
    monkeypatch.setattr(fanout.sys, "platform", "darwin")
    monkeypatch.setattr(fanout.os, "cpu_count", lambda: 7)
    assert fanout.available_cpus() == 7
