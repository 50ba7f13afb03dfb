"""Run code that may hang, or be killed, in a process of its own, and learn how it ended."""

import faulthandler
import json
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import pytest

__all__ = ["Outcome", "Raised", "refusal", "returned", "run_in_child"]


class Outcome(NamedTuple):
    """How a child ended; one of the four is set, or none where it returned None.

    Attributes:
        value: What the function returned, as JSON gives it back.
        error: What it raised.
        killed_by: Name of the signal that ended it, such as ``"SIGBUS"``.
        exceeded: The deadline that it did not meet, in seconds.
    """

    value: Any = None
    error: "Raised | None" = None
    killed_by: str = ""
    exceeded: float = 0.0


class Raised(NamedTuple):
    """An exception, as told by the child.

    Attributes:
        kinds: Names of its classes, from its own to ``"BaseException"``.
        text: Its ``str()``.
        errno: Where it has one.
        report: Its traceback, with notes.
    """

    kinds: list[str]
    text: str
    errno: int | None
    report: str


def run_in_child(function: Callable[[], Any], *, deadline: float) -> Outcome:
    """Call a function in a forked process and say how that went.

    Args:
        function: Called without arguments; what it returns must be plain JSON values.
        deadline: Seconds after which it is killed, with all that it started.
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # From Python 3.12 on: threads of the parent may hold locks. The deadline ends such a child.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        _be_the_child(function, writing)
    os.close(writing)
    message = None
    try:
        message = _receive(reading, deadline)
    finally:
        os.close(reading)
        status = _end(pid, patience=5.0 if message else 0.0)
    if message is None:
        return Outcome(exceeded=deadline)
    if message:
        kind, content = json.loads(message)
        return Outcome(value=content) if kind == "value" else Outcome(error=Raised(*content))
    number = os.waitstatus_to_exitcode(status)
    return Outcome(killed_by=signal.Signals(-number).name if number < 0 else f"exit({number})")


def returned(outcome: Outcome) -> Any:
    """Return what a child returned; any other end fails the test."""
    if outcome.error:
        pytest.fail(outcome.error.report, pytrace=False)
    if outcome.killed_by:
        pytest.fail(f"the process was killed by {outcome.killed_by}", pytrace=False)
    if outcome.exceeded:
        pytest.fail(f"it did not end within {outcome.exceeded} s", pytrace=False)
    return outcome.value


def refusal(outcome: Outcome) -> Raised:
    """Return what a child raised: an ordinary exception; any other end fails the test."""
    if outcome.error is None:
        returned(outcome)
        pytest.fail("expected an error, found none", pytrace=False)
    assert "Exception" in outcome.error.kinds, f"expected an exception: {outcome.error.report}"
    return outcome.error


def _be_the_child(function: Callable[[], Any], writing: int) -> NoReturn:
    code = 1
    try:
        os.setsid()  # a group of its own, for whatever it starts to be killed with it
        faulthandler.disable()
        message = _message(function)
        with open(writing, "w", encoding="utf-8") as pipe:
            pipe.write(message + "\n")
        code = 0
    finally:
        os._exit(code)  # nothing of the parent's is to run a second time: no atexit, no finally


def _message(function: Callable[[], Any]) -> str:
    try:
        return _told(function)
    except BaseException as error:  # of a signal's handler, while another error was told
        return _error(error)


def _told(function: Callable[[], Any]) -> str:
    try:
        return json.dumps(["value", function()])
    except BaseException as error:  # whatever it is, the parent judges it
        return _error(error)


def _error(error: BaseException) -> str:
    _forget_signal_handlers()
    kinds = [kind.__name__ for kind in type(error).__mro__]
    number = getattr(error, "errno", None)
    report = "".join(traceback.format_exception(error))
    return json.dumps(["error", [kinds, str(error), number, report]])


def _forget_signal_handlers() -> None:
    """Those of Python may raise at any time, as that of torch's workers for SIGCHLD does."""
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _receive(reading: int, deadline: float) -> str | None:
    """The child's line, nothing where it died without one, None where it is late."""
    end = time.monotonic() + deadline
    received = b""
    # Not until the end of the file: what the child started may hold the pipe open.
    while not received.endswith(b"\n"):
        if not select.select([reading], [], [], max(0.0, end - time.monotonic()))[0]:
            return None
        if not (chunk := os.read(reading, 1 << 16)):
            return ""
        received += chunk
    return received.decode()


def _end(pid: int, patience: float) -> int:
    """Let a child that has said all end by itself, and kill what is left of its group."""
    end = time.monotonic() + patience
    ended, status = os.waitpid(pid, os.WNOHANG)
    while not ended and time.monotonic() < end:
        time.sleep(0.001)
        ended, status = os.waitpid(pid, os.WNOHANG)
    for target in (-pid,) if ended else (-pid, pid):
        try:
            os.kill(target, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return status if ended else os.waitpid(pid, 0)[1]
