"""What every test of the project may use."""

import signal
import sys
import time
from typing import Any

from hypothesis import settings

pytest_plugins = ["pytester"]

# Examples write files, on whatever disk this runs: how long one takes says nothing about the code.
settings.register_profile("shardproof", deadline=None)
settings.load_profile("shardproof")

# A job in the background of a shell ignores interrupts, and so would the children that tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


_settrace = sys.settrace


def _settrace_in_turn(function: Any) -> None:
    """Wait while another thread sets its own, which Python 3.11 answers by an error.

    Each thread that begins under coverage does it, with tests' audit hooks in between; by that
    error it ends there and then, and a server no longer answers.
    """
    for _ in range(1000):
        try:
            return _settrace(function)
        except RuntimeError:
            time.sleep(1e-4)
    return _settrace(function)


if sys.gettrace() is not None:
    sys.settrace = _settrace_in_turn
