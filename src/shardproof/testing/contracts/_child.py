"""An end for code that may hang: by a timer, or in a child; and what comes of it."""

import array
import contextlib
import faulthandler
import gc
import hashlib
import json
import math
import multiprocessing
import os
import signal
import stat
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import connection
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from shardproof.testing.faults.file_system._schedule import absolute
from shardproof.testing.samples._oracle import reported_kinds

_AT_ONCE = 1e-6  # 0 would turn a timer off


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` inside, wherever the main thread is, once the time is up.

    It ends whatever Python waits for: a named pipe without a writer, a lock, another thread.
    Code of C that never returns to Python it can't end; for that take another process, as
    `shardproof.testing.contracts` does. Code that holds the error back is interrupted again after
    as many seconds, and at the end of the context it is raised all the same.

    Limits nest: the one that ends first counts. It uses SIGALRM: another timer that is due inside,
    as of pytest-timeout, rings once, and at the end handler and timer are put back.

    Args:
        seconds: More than 0.

    Raises:
        TimeoutError: It did not end in time.
        RuntimeError: This is not the main thread, which alone gets signals.
        ValueError: No number of seconds above 0.

    Example:
        >>> from shardproof.testing import Layout, shards_dir, time_limit
        >>> with shards_dir(Layout(fifo=[0])) as path, time_limit(0.1):
        ...     (path / "acts000000.bin").read_bytes()
        Traceback (most recent call last):
        TimeoutError: expected an end within 0.1 s, found none...
    """
    if not 0 < seconds < math.inf:
        raise ValueError(f"seconds: expected a number above 0, found {seconds!r}")
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("time_limit: expected the main thread, which alone gets signals")
    error = TimeoutError(
        f"expected an end within {seconds} s, found none; "
        "opening a named pipe (a fifo) without O_NONBLOCK waits for a writer"
    )
    begin, is_on, has_rung = time.monotonic(), True, False
    theirs = signal.getsignal(signal.SIGALRM)
    their_left, their_interval = signal.getitimer(signal.ITIMER_REAL)

    def passed() -> float:
        return time.monotonic() - begin

    def ring(number: int, frame: FrameType | None) -> None:
        nonlocal has_rung, their_left
        if not is_on:
            return
        if their_left and callable(theirs) and passed() >= their_left:
            their_left = their_interval and passed() + their_interval
            signal.setitimer(signal.ITIMER_REAL, max(seconds - passed(), _AT_ONCE), seconds)
            theirs(number, frame)
            return
        has_rung = True
        raise error

    try:
        signal.signal(signal.SIGALRM, ring)
        # Again after as many seconds, for code that holds the error back.
        signal.setitimer(signal.ITIMER_REAL, min(seconds, their_left or seconds), seconds)
        yield
    finally:
        is_on = False  # before any call, into whose first step it could ring
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, theirs or signal.SIG_DFL)
        if their_left:
            left = max(their_left - passed(), _AT_ONCE)
            signal.setitimer(signal.ITIMER_REAL, left, their_interval)
    if has_rung:
        raise error


class ChildResult(NamedTuple):
    """How a child ended; one of the four is set, or none where it returned None."""

    value: Any = None  # as JSON gives it back
    error: "Raised | None" = None
    killed_by: str = ""  # the name of a signal, such as "SIGBUS"
    exceeded: float = 0.0  # the deadline, in seconds


class Raised(NamedTuple):
    """An exception of the child."""

    kinds: list[str]  # names of its classes, from its own to "BaseException"
    text: str
    report: str  # its traceback, with notes
    reported: list[str]  # as what it reports the file that the child was about: `reported_kinds`


def run_in_child(
    function: Callable[[], Any], *, deadline: float, about: Path | None = None
) -> ChildResult:
    """Call a function that returns plain JSON in a fork; once it is late, kill all it started."""
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    child = context.Process(target=_be_the_child, args=(function, writing, about))
    with warnings.catch_warnings():
        # From Python 3.12 on: threads of the parent may hold locks. The deadline ends such a child.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    assert child.pid  # there is none before the start only
    writing.close()
    said: list[Any] | None = None
    try:
        # Not until the end of the pipe: what the child started may hold it open.
        is_late = not connection.wait([reading, child.sentinel], deadline)
        with contextlib.suppress(EOFError, OSError):  # killed before it had said all
            said = json.loads(reading.recv_bytes()) if reading.poll() else None
    finally:
        reading.close()
        child.join(5.0 if said else 0.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()
    if said:
        return ChildResult(said[1]) if said[0] == "value" else ChildResult(error=Raised(*said[1]))
    if is_late:
        return ChildResult(exceeded=deadline)
    code = child.exitcode or 0
    return ChildResult(killed_by=signal.Signals(-code).name if code < 0 else f"exit({code})")


def crash_of(outcome: ChildResult) -> str:
    """Return how a child ended that neither returned nor raised an exception, or nothing."""
    if outcome.exceeded:
        return f"a hang: it did not end within {outcome.exceeded} s"
    if outcome.killed_by:
        return f"a crash: the process was killed by {outcome.killed_by}"
    if outcome.error and "Exception" not in outcome.error.kinds:
        return f"a crash: expected an exception: {outcome.error.report}"
    return ""


def _be_the_child(function: Callable[[], Any], writing: Any, about: Path | None) -> NoReturn:
    code = 1
    try:
        os.setsid()  # a group of its own, for whatever it starts to be killed with it
        faulthandler.disable()
        try:
            try:
                message = json.dumps(["value", function()])
            except BaseException as error:  # whatever it is, the parent judges it
                message = _error(error, about)
        except BaseException as error:  # of a signal's handler, while another error was told
            message = _error(error, about)
        writing.send_bytes(message.encode())
        code = 0
    finally:
        os._exit(code)  # nothing of the parent's is to run a second time: no atexit, no finally


def _error(error: BaseException, about: Path | None) -> str:
    # Python's handlers may raise at any time, as that of torch's workers for SIGCHLD does.
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    kinds = [kind.__name__ for kind in type(error).__mro__]
    report = "".join(traceback.format_exception(error))
    reported = sorted(reported_kinds(error, about)) if about else []
    return json.dumps(["error", [kinds, str(error), report, reported]])


def traces() -> set[str]:
    """Return the threads and descriptors that this process holds now; processes too on Linux."""
    found = {f"thread {thread.name!r} {thread.ident}" for thread in threading.enumerate()}
    # A thread may end while it is looked at; what it started is then another's child.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found |= {f"process {pid}" for pid in (task / "children").read_text().split()}
    for name in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the one that listed them
            what = absolute(int(name)) or os.fstat(int(name))[1:3]  # inode and device
            found.add(f"descriptor {name} of {what}")
    return found


def left_behind(before: set[str]) -> list[str]:
    """Return what is there now and was not before; what is about to end gets two seconds."""
    end = time.monotonic() + 2.0  # for a thread that was told to end
    while True:
        found = sorted(traces() - before)
        if not found or time.monotonic() >= end:
            return found
        gc.collect()
        time.sleep(0.01)


def left_by(use: Callable[[], object]) -> list[str]:
    """Return what three calls leave behind, after one: what a library starts once, it may keep."""
    use()
    before = traces()
    for _ in range(3):
        use()
    return left_behind(before)


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return mode, size and time of everything below a directory, and of where links lead out."""
    paths = [os.fspath(root), *_below(root), *_below(f"{root}-elsewhere")]
    found = ((path, os.lstat(path)) for path in paths)
    return {path: (each.st_mode, each.st_size, each.st_mtime_ns) for path, each in found}


def _below(directory: str | os.PathLike[str]) -> Iterator[str]:
    with contextlib.suppress(PermissionError, FileNotFoundError), os.scandir(directory) as found:
        for entry in found:
            yield entry.path
            if stat.S_ISDIR(entry.stat(follow_symlinks=False).st_mode):
                yield from _below(entry.path)


def fingerprint(sample: Any) -> str:
    """Return text that is equal for equal samples: of numbers, arrays, tensors, and nests of them.

    Arrays and tensors are known by their ``dtype``, ``shape`` and bytes. What is none of these is
    known by its repr.

    Example:
        >>> fingerprint({"x": [1, 2.0]}) == fingerprint({"x": [1, 2.0]})
        True
    """
    if isinstance(sample, Mapping):
        items = (f"{key!r}: {fingerprint(value)}" for key, value in sample.items())
        return "{" + ", ".join(sorted(items)) + "}"
    if isinstance(sample, (list, tuple)):
        return "[" + ", ".join(map(fingerprint, sample)) + "]"
    if isinstance(sample, (bytes, bytearray, memoryview, array.array)):
        view = memoryview(sample)
        return f"{view.format}{view.shape}:{_digest(view.tobytes())}"
    if hasattr(sample, "dtype") and hasattr(sample, "shape"):
        about, values = f"{sample.dtype}{tuple(sample.shape)}", sample
        if not hasattr(values, "tobytes"):  # a tensor of torch; numpy has no bfloat16, but uint8
            tensor = values.detach().cpu().contiguous().reshape(-1)
            values = tensor.view(sys.modules["torch"].uint8).numpy()
        is_any = values.dtype == object  # whose bytes are addresses
        return f"{about}:{_digest(repr(values.tolist()).encode() if is_any else values.tobytes())}"
    return repr(sample)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
