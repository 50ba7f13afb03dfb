"""A plugin of pytest that keeps the quick tier quick, and says what each test function costs."""

import resource
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 4.0
"""So many times the limit a function may take by the clock, which runs as many times slower as all
tests together took longer by the clock than of processors: so busy is the machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run fail by what its tests cost, or write it down."""
    group = parser.getgroup("tiers")
    group.addoption(
        "--limit",
        type=float,
        metavar="SECONDS",
        help="Fail if all cases of a function that is not marked slow take more, of processors.",
    )
    group.addoption("--costs", metavar="FILE", help="Write down what each function takes.")


def pytest_configure(config: pytest.Config) -> None:
    """Measure where tests run, and add up where their reports arrive."""
    limit, file = config.getoption("--limit"), config.getoption("--costs")
    if limit is None and file is None:
        return
    config.pluginmanager.register(Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger(limit, file))


class Meter:
    """Measures each phase of a test in this process and in the children that it waited for."""

    def __init__(self) -> None:
        self._before = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._before = processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = processor_seconds()
        report.processor_seconds = now - self._before  # travels with it out of a worker
        self._before = now
        return report


@dataclass
class Cost:
    """What all cases of a function took: setup, call and teardown, in seconds."""

    processor: float = 0.0
    clock: float = 0.0
    is_slow: bool = False


class Ledger:
    """Adds up, and fails the run where a function of the quick tier is slow."""

    def __init__(self, limit: float | None, file: str | None) -> None:
        self._costs = defaultdict[str, Cost](Cost)
        self._limit = limit
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        cost = self._costs[report.nodeid.partition("[")[0]]
        cost.processor += getattr(report, "processor_seconds", 0.0)  # none where a worker died
        cost.clock += report.duration
        cost.is_slow |= "slow" in report.keywords

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self._file is not None:
            rows = sorted(self._costs.items(), key=lambda row: -row[1].processor)
            lines = [f"{cost.processor:.3f}\t{cost.clock:.3f}\t{name}\n" for name, cost in rows]
            Path(self._file).write_text("".join(lines))
        if self.too_slow() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        found = self.too_slow()
        if found:
            terminalreporter.section("slow, and not marked so", red=True, bold=True)
        for name, cost in found.items():
            took = f"{cost.processor:.1f} s of processors, {cost.clock:.1f} s by the clock"
            terminalreporter.line(f"{name}: {took}; at most {self._limit:g} s are quick")

    def too_slow(self) -> dict[str, Cost]:
        """Return what the functions cost that are over the limit and not marked."""
        if self._limit is None:
            return {}
        costs = self._costs.values()
        processor, clock = sum(cost.processor for cost in costs), sum(cost.clock for cost in costs)
        most_by_the_clock = self._limit * PATIENCE * max(1.0, clock / (processor or clock or 1.0))
        return {
            name: cost
            for name, cost in self._costs.items()
            if not cost.is_slow and (cost.processor > self._limit or cost.clock > most_by_the_clock)
        }


def processor_seconds() -> float:
    """Return what this process and the children that it waited for have used so far."""
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)
