"""Code that runs in a child: how it ended, and what it left behind."""

import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from shardproof.testing.contracts import fingerprint
from shardproof.testing.contracts._child import (
    ChildResult,
    left_behind,
    run_in_child,
    traces,
)
from tests.helpers.forking import returned


def ended(function) -> ChildResult:
    return run_in_child(function, deadline=30)


def test_a_crash_is_what_is_no_exception_and_a_signal_and_an_exit_are_named() -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    with pytest.raises(pytest.fail.Exception, match="a crash: expected an exception"):
        returned(ended(fail))
    outcome = ended(lambda: os.kill(os.getpid(), signal.SIGBUS))
    assert outcome.killed_by == "SIGBUS"
    with pytest.raises(pytest.fail.Exception, match="killed by SIGBUS"):
        returned(outcome)
    assert ended(lambda: os._exit(3)).killed_by == "exit(3)"


def test_a_deadline_ends_it_and_all_that_it_started() -> None:
    read, write = os.pipe()

    def hang() -> None:
        subprocess.Popen(["sleep", "1000"], pass_fds=[write])
        time.sleep(1000)

    outcome = run_in_child(hang, deadline=0.5)
    os.close(write)
    with open(read, "rb") as pipe:
        assert pipe.read() == b""  # the other end is closed: nobody who had it is left
    with pytest.raises(pytest.fail.Exception, match=r"did not end within 0\.5 s"):
        returned(outcome)


def test_a_signal_handler_that_raises_does_not_hide_the_error() -> None:
    """As torch's does, for a worker that died, while that error is on its way."""

    class Error(Exception):
        def __str__(self) -> str:
            os.kill(os.getpid(), signal.SIGUSR1)
            return "the error"

    def handle(*_: object) -> None:
        raise RuntimeError("from the handler")

    def fail() -> None:
        signal.signal(signal.SIGUSR1, handle)
        raise Error

    # Without its handler the signal has its usual effect, which is to end the process.
    assert ended(fail).killed_by == "SIGUSR1"


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (1.5, 1.5, 2.5),
        ([1, (2,)], [1, (2,)], [1, (3,)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}),
        (b"ab", bytearray(b"ab"), b"ac"),
        *((np.arange(4), np.arange(4), each) for each in (np.arange(4)[::-1], np.arange(4.0))),
        (np.arange(4), np.arange(4), np.arange(4).reshape(2, 2)),
        (np.array([[1], "a"], object), np.array([[1], "a"], object), np.array([[2], "a"], object)),
    ],
)
def test_samples_are_known_by_what_is_in_them(one, same, other) -> None:
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(other)


def test_threads_that_end_while_they_are_looked_at() -> None:
    stop = threading.Event()

    def come_and_go() -> None:
        while not stop.is_set():
            with ThreadPoolExecutor(8) as pool:
                pool.map(int, range(8))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(come_and_go)
        for _ in range(500):
            traces()
        stop.set()


@pytest.mark.slow
def test_a_thread_that_is_left() -> None:
    before, release = traces(), threading.Event()
    thread = threading.Thread(target=release.wait, name="left")
    thread.start()
    found = left_behind(before)
    release.set()
    thread.join()
    assert "thread 'left'" in "\n".join(found)
    assert left_behind(before) == []
