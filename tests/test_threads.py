"""Starting a thread, and what an interrupt of it comes out as."""

import threading

import pytest

from shardproof import _threads


def interrupted_wait() -> None:
    """Wait as Thread.start does, and be interrupted where the lock is not held."""
    condition = threading.Condition(threading.Lock())
    condition._acquire_restore = interrupt
    with condition:
        condition.wait(0.001)


def interrupt(state: object) -> None:
    raise KeyboardInterrupt


def test_python_turns_this_interrupt_into_an_error_of_a_lock() -> None:
    """The control: why _threads exists."""
    with pytest.raises(RuntimeError, match="release unlocked lock"):
        interrupted_wait()


def test_an_interrupted_start_is_an_interrupt_and_tells_the_thread_to_stop() -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, args=(30,), daemon=True)
    thread._started.wait = interrupted_wait

    with pytest.raises(KeyboardInterrupt):
        _threads.start(thread, stop)

    assert stop.is_set()
    threading.Event.wait(thread._started, 30)  # no thread is joined before it runs
    thread.join(30)
    assert not thread.is_alive()


def test_another_error_is_not_called_an_interrupt() -> None:
    thread = threading.Thread(target=int)
    _threads.start(thread)
    thread.join()

    with pytest.raises(RuntimeError, match="threads can only be started once"):
        _threads.start(thread)
