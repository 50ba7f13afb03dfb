"""What an attack is given, and how it is judged: in one place, by its mark."""

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.attacks.tally import Tally


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/attacks/") and not item.get_closest_marker("attack"):
            item.add_marker("attack")


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    if control := request.node.get_closest_marker("control"):
        return Tally("control", is_exhaustive=True, wanted=control.args)
    row = request.node.get_closest_marker("attack").args[0]
    return Tally(row, is_exhaustive=request.config.getoption("--exhaustive"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    result = yield
    attack, control = map(pyfuncitem.get_closest_marker, ("attack", "control"))
    if control or (attack and attack.args):
        found = pyfuncitem.funcargs.get("tally")
        assert isinstance(found, Tally)
        figures = pyfuncitem.config.getoption("--figures")
        if figures and not control:
            found.write(Path(figures))
        found.judge()
    return result


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def no_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is there whether it was synced or not: a killed process is no power cut."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file has changed lately: a change time can't be set back."""
    monkeypatch.setattr("shardproof.checks._proofs.SETTLED_SECONDS", -3600.0)
