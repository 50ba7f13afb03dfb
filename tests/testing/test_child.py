"""Code that runs in a child: how it ended is told, whatever it did."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest

from shardproof.testing.contracts import fingerprint
from shardproof.testing.contracts._child import ChildResult, Raised, returned, run_in_child


def ended(function) -> ChildResult:
    return run_in_child(function, deadline=30)


def test_what_it_returns_is_told() -> None:
    assert returned(ended(lambda: {"a": [1, "é\n"]})) == {"a": [1, "é\n"]}
    assert returned(ended(lambda: None)) is None
    assert len(returned(ended(lambda: "x" * 10**6))) == 10**6


def test_it_is_another_process() -> None:
    here = []
    assert returned(ended(os.getpid)) != os.getpid()
    returned(ended(lambda: here.append(1)))
    assert here == []


def test_what_it_raises_is_told() -> None:
    def fail() -> None:
        error = FileNotFoundError(2, "gone", "/a")
        error.add_note("a note")
        raise error

    error = ended(fail).error
    assert isinstance(error, Raised)
    assert error.kinds[:2] == ["FileNotFoundError", "OSError"]
    assert error.text == "[Errno 2] gone: '/a'"
    assert "in fail" in error.report
    assert "a note" in error.report


def test_an_error_fails_whoever_expected_none() -> None:
    with pytest.raises(pytest.fail.Exception, match="ZeroDivisionError"):
        returned(ended(lambda: 1 // 0))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_crash_is_what_is_no_exception(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(pytest.fail.Exception, match="a crash: expected an exception"):
        returned(ended(fail))


@pytest.mark.parametrize("number", [signal.SIGBUS, signal.SIGKILL])
def test_a_signal_is_named(number: signal.Signals) -> None:
    outcome = ended(lambda: os.kill(os.getpid(), number))
    assert outcome.killed_by == number.name
    with pytest.raises(pytest.fail.Exception, match=f"killed by {number.name}"):
        returned(outcome)


def test_an_exit_is_told() -> None:
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


def test_what_can_not_be_told_is_an_error() -> None:
    error = ended(lambda: {1, 2}).error
    assert error
    assert error.kinds[0] == "TypeError"


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        (1.5, 1.5, 2.5),
        ([1, (2,)], [1, (2,)], [1, (3,)]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2, "b": 1}),
        (b"ab", bytearray(b"ab"), b"ac"),
        (np.arange(4), np.arange(4), np.arange(4)[::-1]),
        (np.arange(4), np.arange(4), np.arange(4).reshape(2, 2)),
        (np.arange(4), np.arange(4), np.arange(4, dtype=np.float32)),
        (np.array([[1], "a"], object), np.array([[1], "a"], object), np.array([[2], "a"], object)),
    ],
)
def test_samples_are_known_by_what_is_in_them(one, same, other) -> None:
    assert fingerprint(one) == fingerprint(same)
    assert fingerprint(one) != fingerprint(other)
