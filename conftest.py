"""What every test of the project may use."""

import gc
import itertools
import math
import os
import signal
from collections import defaultdict

import beartype  # noqa: F401 - as numpy: runs of pytest inside this process can't load it anew
import pytest
from hypothesis import settings

pytest_plugins = ["pytester", "tests.helpers.lacking", "tests.helpers.pages", "tests.helpers.tiers"]

# Examples write files, on whatever disk this runs: how long one takes says nothing about the code.
settings.register_profile("full", deadline=None)
# For runs that are about something else than the cases: --hypothesis-profile=few.
settings.register_profile("few", settings.get_profile("full"), max_examples=15)
settings.register_profile("half", settings.get_profile("full"), max_examples=50)
settings.load_profile("half")

# A job in the background of a shell ignores interrupts, and so would the children that tests
# interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# So does one of nohup with hang-ups. This process goes on doing so, by what no child inherits.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run have all cases of each attack (docs/attacks.md), or a few of each test."""
    group = parser.getgroup("attacks")
    group.addoption(
        "--exhaustive", action="store_true", help="Run all cases of each attack and test."
    )
    group.addoption("--figures", metavar="FILE", help="Append the figures of attacks to a file.")
    parser.addoption("--cases", type=int, metavar="N", help="Run at most N cases of each test.")
    parser.addoption("--every", type=int, default=1, metavar="K", help="Of these, each K-th only.")


def pytest_configure(config: pytest.Config) -> None:
    """Count the lines of workers and of their forks; in commands that tests start it takes long."""
    if hasattr(config, "workerinput"):
        os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    elif config.pluginmanager.hasplugin("xdist"):
        from xdist.workermanage import NodeManager  # noqa: PLC0415 - a run without it needs none

        # A worker that is killed after ten seconds has not written down which lines it reached.
        NodeManager.EXIT_TIMEOUT = 120


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave of each test a few of its cases, where that is asked for; the slow ones begin."""
    # In the end, all workers but one would wait for them.
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    most = config.getoption("--cases")
    if most is not None:
        cases = defaultdict[str, list[pytest.Item]](list)
        for item in items:
            cases[item.nodeid.partition("[")[0]].append(item)
        # Every so many of them, as cases that follow each other are alike.
        few = (item for some in cases.values() for item in some[:: math.ceil(len(some) / most)])
        kept = {*itertools.islice(few, None, None, config.getoption("--every"))}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Of a long row of cases in a test each third is tried; each one with ``--exhaustive``."""
    return 1 if request.config.getoption("exhaustive") else 3


def pytest_collection_finish() -> None:
    """Take thousands of tests out of what is looked through for garbage, here and in children."""
    gc.collect()
    gc.freeze()
