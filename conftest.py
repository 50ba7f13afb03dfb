"""What every test of the project may use."""

import signal

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

# Examples write files, on whatever disk this runs: how long one takes says nothing about the code.
settings.register_profile("shardproof", deadline=None)
settings.load_profile("shardproof")

# A job in the background of a shell ignores interrupts, and so would the children that tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# So does one of nohup with hang-ups. This process goes on doing so, by what no child inherits.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let attacks run all of their cases; docs/attacks.md says what they are."""
    group = parser.getgroup("attacks")
    group.addoption("--exhaustive", action="store_true", help="Run all cases of each attack.")
    group.addoption("--figures", metavar="FILE", help="Append the figures of attacks to a file.")
