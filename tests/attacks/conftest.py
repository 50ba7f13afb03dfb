"""What an attack is given: a tally, named by its mark."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.tally import Tally


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let controls run where attacks do, which they show to be able to fail."""
    for item in items:
        if item.nodeid.startswith("tests/attacks/") and not item.get_closest_marker("attack"):
            item.add_marker("attack")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Count cases and harm; fail at the end if there was any.

    The test is marked ``attack("the row of the table")``.
    """
    mark = request.node.get_closest_marker("attack")
    tally = Tally(mark.args[0], is_exhaustive=request.config.getoption("--exhaustive"))
    yield tally
    figures = request.config.getoption("--figures")
    if figures:
        tally.write(Path(figures))
    tally.assert_harmless()


@pytest.fixture
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is there whether it was synced or not: a killed process is no power cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
