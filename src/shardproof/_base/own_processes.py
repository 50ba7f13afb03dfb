"""Fresh processes of our own, for work that has ended a worker of somebody's executor.

Not those of `multiprocessing`, which import the caller's script anew or fork its threads' locks.
"""

import contextlib
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from shardproof._base.fanout import available_cpus

# What the work prints is no answer, and goes to standard error.
_SERVE = """import os, pickle, sys
tasks, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
sys.path[:] = pickle.load(tasks)
import shardproof.checks
answers.write(b"\\nready\\n")
answers.flush()
while tasks.peek(1):
    try:
        answer = pickle.load(tasks)()
    except Exception as error:  # of what is not there, such as a function of the caller's script
        answer = error
    pickle.dump(answer, answers)
    answers.flush()
"""


class ProcessLostError(Exception):
    """A process of our own has ended at its work."""


class OwnProcesses:
    """As many processes as there are processors, each begun when it is needed."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(available_cpus(), "shardproof-own")
        self._lock, self._is_closed = threading.Lock(), False
        self._begun, self._thread = list[Any](), threading.local()  # of each thread its process

    def submit(self, work: Callable[[], Any]) -> "Future[Any]":
        """Have some work done in one of them."""
        return self._threads.submit(self._do, work)

    def _do(self, work: Callable[[], Any]) -> Any:
        data = pickle.dumps(work)
        child = self._thread.child = getattr(self._thread, "child", None) or self._begin()
        try:
            child.stdin.write(data)
            child.stdin.flush()
            answer = pickle.load(child.stdout)  # noqa: S301 - our own
        except (OSError, EOFError, pickle.UnpicklingError):
            self._thread.child = None
            raise ProcessLostError(_ending_of(child)) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _begin(self) -> Any:
        import subprocess  # noqa: PLC0415 - rarely used

        with self._lock:
            if self._is_closed:
                raise ProcessLostError
            # In a group of its own, since a terminal's Ctrl-C is its parent's affair; and without
            # the current directory, whose pickle.py would be imported.
            command, pipe = [sys.executable, "-P", "-c", _SERVE], subprocess.PIPE
            child: Any = subprocess.Popen(command, stdin=pipe, stdout=pipe, process_group=0)  # noqa: S603
            self._begun.append(child)
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(pickle.dumps(sys.path))
            child.stdin.flush()
        while line := child.stdout.readline():  # what a site prints as Python begins comes first
            if line == b"ready\n":
                return child
        # Of a file this says nothing.
        raise ChildProcessError(f"a process of shardproof's own did not begin: {_ending_of(child)}")

    def close(self) -> None:
        """End them all, whatever they are at."""
        with self._lock:
            self._is_closed = True
            for child in self._begun:
                child.kill()
        self._threads.shutdown(cancel_futures=True)
        for child in self._begun:
            _ending_of(child)


def _ending_of(child: Any) -> str:
    with contextlib.suppress(BrokenPipeError), child:  # closes pipes, and waits
        pass
    name = {-each: each.name for each in signal.Signals}.get(child.wait(), "")
    why = ": likely out of memory, or over a limit" * (name == "SIGKILL")
    return f"{name}{why}" if name else f"exit status {child.returncode}"
