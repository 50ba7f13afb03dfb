"""Children that do a part of a test, and can't hang it."""

import asyncio
import inspect
import os
import random
import signal
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from shardproof.testing.contracts._child import ChildResult, crash_of

__all__ = ["PATIENCE", "ended", "forked", "returned"]

PATIENCE = 60
"""Seconds after which a child is killed by SIGALRM."""


def forked(function: Callable[[], object]) -> int:
    """Call a function in a child, which ends with 0 unless it raises; return its process number."""
    with warnings.catch_warnings():
        # From Python 3.12 on: threads of the parent may hold locks. SIGALRM ends such a child.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(PATIENCE)
            random.seed()
            result = function()
            if inspect.iscoroutine(result):
                asyncio.run(result)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    """Wait for a child; return its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def returned(outcome: ChildResult) -> Any:
    """Return what a child of the kit returned; any other end fails the test."""
    if end := crash_of(outcome) or (outcome.error and outcome.error.report):
        pytest.fail(end, pytrace=False)
    return outcome.value
