"""Run two actions in turns, changing from one to the other between any two calls of the system."""

import itertools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

CALLS = ("link", "listdir", "lstat", "mkdir", "open", "rename", "replace", "rmdir", "stat")
CALLS += ("unlink",)

Action = Callable[[], object]


class Turns:
    """Stops threads at their calls, until it is their turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._runs: dict[int, Runner] = {}
        for name in CALLS:
            monkeypatch.setattr(os, name, self._stopping(getattr(os, name)))

    def _stopping(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: Any, **keywords: Any) -> object:
            runner = self._runs.get(threading.get_ident())
            if runner is not None and _may_matter(real.__name__, args, keywords):
                runner.before_call()
            return real(*args, **keywords)

        return call

    def run(self, first: Action, second: Action, k: int, j: int) -> tuple[bool, bool]:
        """Run both in turns; say whether each was interrupted, or ended before."""
        runners = Runner(first, k, self._runs), Runner(second, j, self._runs)
        was_interrupted = tuple(runner.go_on() for runner in runners)
        for runner in runners:
            runner.finish()
        for runner in runners:
            if runner.error is not None:
                raise runner.error
        return was_interrupted[0], was_interrupted[1]


def _may_matter(name: str, args: Sequence[Any], keywords: Mapping[str, Any]) -> bool:
    """Whether another process could see this call, or its answer depend on another process."""
    is_private = isinstance(args[0], str) and re.search(r"/parts/|\.tmp$", args[0])
    if name == "open":
        return bool(args[1] & os.O_CREAT) and not is_private
    if name == "stat":
        return keywords.get("dir_fd") is not None
    return not is_private or name in {"link", "rename", "replace"}


class Runner:
    """One action in its thread, and how many calls it may make in its first turn."""

    def __init__(self, action: Action, n_calls: int, runs: dict[int, "Runner"]) -> None:
        self.error: BaseException | None = None
        self._action, self._left, self._runs = action, n_calls, runs
        self._turn, self._pause = threading.Event(), threading.Event()
        self._is_interrupted = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._turn.wait()
        self._runs[threading.get_ident()] = self
        try:
            self._action()
        except BaseException as error:
            self.error = error
        finally:
            del self._runs[threading.get_ident()]
            self._pause.set()

    def before_call(self) -> None:
        """Called in its thread."""
        self._left -= 1
        if self._left < 0 and not self._is_interrupted:
            self._is_interrupted = True
            self._turn.clear()
            self._pause.set()
            self._turn.wait()

    def go_on(self) -> bool:
        """Let it have its first turn; say whether there is more to do."""
        self._turn.set()
        self._pause.wait()
        return self._is_interrupted

    def finish(self) -> None:
        """Let it run to its end."""
        self._turn.set()
        self._thread.join()


def in_all_turns(turns, prepare, check, *, every=1) -> int:
    """Run what ``prepare`` returns in all turns that there are, and ``check`` after each."""
    n_runs = 0
    for k in itertools.count():
        for j in itertools.count(-k % every, every):
            first_goes_on, second_goes_on = turns.run(*prepare(), k, j)
            check()
            n_runs += 1
            if not second_goes_on:
                break
        if not first_goes_on:
            return n_runs
    raise AssertionError("it ends")
