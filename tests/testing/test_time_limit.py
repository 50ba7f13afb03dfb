"""A limit ends what waits for ever, and leaves the process as it was."""

import concurrent.futures
import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shardproof.testing import Layout, shards_dir, time_limit

SOON = 0.05


@pytest.fixture(autouse=True)
def all_is_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.fixture
def fifo() -> Iterator[Path]:
    with shards_dir(Layout(2, fifo=[0])) as path:
        yield path / "acts000000.bin"


WAITING: dict[str, Callable[[Path], object]] = {
    "open": open,
    "write": lambda path: open(path, "wb"),  # noqa: SIM115
    "lock": lambda _: threading.Semaphore(0).acquire(),
    "sleep": lambda _: time.sleep(60),
    "process": lambda _: subprocess.run(["sleep", "60"]),
    "compute": lambda _: [None for _ in iter(int, 1)],
}


@pytest.mark.parametrize("name", WAITING)
def test_what_waits_is_ended(name: str, fifo: Path) -> None:
    text = f"^expected an end within {SOON} s, found none"
    with pytest.raises(TimeoutError, match=text), time_limit(SOON):
        WAITING[name](fifo)


def test_what_ends_in_time_is_not_and_an_error_comes_through() -> None:
    with time_limit(1000):
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
    with pytest.raises(ZeroDivisionError), time_limit(60):
        1 / 0  # noqa: B018


def skip_bad_files(path: Path) -> None:
    for _ in range(3):  # of which each would wait for ever
        with contextlib.suppress(OSError):
            path.read_bytes()


def test_who_holds_the_error_back_is_told_again(fifo: Path) -> None:
    with pytest.raises(TimeoutError), time_limit(SOON):
        skip_bad_files(fifo)


@pytest.mark.parametrize(("outer", "inner"), [(SOON, 60), (60, SOON)])
def test_the_one_that_ends_first_counts(outer: float, inner: float, fifo: Path) -> None:
    text = f"within {SOON} s"
    with pytest.raises(TimeoutError, match=text), time_limit(outer), time_limit(inner):
        fifo.read_bytes()


@pytest.fixture
def rung() -> Iterator[list[int]]:
    """How often somebody else's alarm rang, which raises nothing."""
    found: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: found.append(number))
    yield found
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_somebody_elses_timer_runs_on_and_one_that_rings_once_rings_once(rung: list[int]) -> None:
    signal.setitimer(signal.ITIMER_REAL, 1000, 2000)
    with pytest.raises(TimeoutError), time_limit(SOON):
        time.sleep(60)
    assert not rung
    remaining, interval = signal.getitimer(signal.ITIMER_REAL)
    assert 0 < remaining <= 1000 - SOON
    assert interval == 2000
    signal.setitimer(signal.ITIMER_REAL, SOON / 10)
    with pytest.raises(TimeoutError), time_limit(SOON):
        time.sleep(60)
    assert len(rung) == 1
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_what_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="seconds: expected a number above 0, found"):
        time_limit(seconds).__enter__()


def test_another_thread_is_refused() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        entered = pool.submit(time_limit(1).__enter__)
        with pytest.raises(RuntimeError, match="main thread"):
            entered.result()
