"""A mailbox gives everything to somebody, in order, and a wait for it ends in time."""

import collections
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from shardproof._base.threads import Mailbox

SLOWLY_HANDLED = """
import os, queue, signal, sys, threading, time
from shardproof._base.threads import Mailbox

signal.signal(signal.SIGUSR1, lambda *_: time.sleep(1.2))
box = {"Mailbox": Mailbox, "SimpleQueue": queue.SimpleQueue}[sys.argv[1]]()
threading.Timer(0.35, os.kill, (os.getpid(), signal.SIGUSR1)).start()
threading.Timer(5, os._exit, (1,)).start()
try:
    box.get(timeout=1.15)
except queue.Empty:
    os._exit(0)
"""


def test_it_gives_what_it_got_in_order() -> None:
    box = Mailbox()
    for item in range(3):
        box.put(item)

    assert [box.get(timeout=0) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(queue.Empty):
        box.get(timeout=0)


def test_a_wait_ends_when_something_comes() -> None:
    box = Mailbox()
    timer = threading.Timer(0.05, box.put, ("x",))
    timer.start()

    assert box.get(timeout=30) == "x"
    timer.join()


def test_a_wait_lasts_as_long_as_it_should_after_something_has_come_and_gone() -> None:
    box = Mailbox()
    box.put("x")
    box.get(timeout=0)
    began = time.monotonic()

    with pytest.raises(queue.Empty):
        box.get(timeout=0.1)

    assert time.monotonic() - began >= 0.1


def test_each_waiting_thread_gets_one() -> None:
    """Also if both come before the first thread has woken up."""
    box, got = Mailbox(), collections.deque()
    threads = [threading.Thread(target=lambda: got.append(box.get(timeout=30))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for item in range(8):
        box.put(item)
    for thread in threads:
        thread.join(20)

    assert sorted(got) == [*range(8)]


def test_many_threads_lose_nothing() -> None:
    box, got = Mailbox(), collections.deque()

    def put(first: int) -> None:
        for item in range(first, first + 500):
            box.put(item)

    def get() -> None:
        for _ in range(500):
            got.append(box.get(timeout=30))

    threads = [threading.Thread(target=put, args=(n * 500,)) for n in range(4)]
    threads += [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(got) == [*range(2000)]


def test_an_interrupted_wait_loses_nothing() -> None:
    box = Mailbox()
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        box.get(timeout=30)
    timer.join()
    box.put("x")

    assert box.get(timeout=0) == "x"


@pytest.mark.parametrize("kind", ["Mailbox", "SimpleQueue"])
def test_a_wait_ends_although_a_signal_is_handled_for_longer(kind: str) -> None:
    run = subprocess.run([sys.executable, "-c", SLOWLY_HANDLED, kind], timeout=60)

    hangs = kind == "SimpleQueue" and sys.version_info < (3, 13)  # the control: why it exists
    assert run.returncode == hangs
