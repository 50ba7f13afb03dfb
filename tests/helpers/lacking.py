"""A plugin of pytest: a test that lacks a package of the group `tests` is skipped, and says which.

So `pip install '.[testing]'` suffices for a first look. Where all is installed, it does nothing.
"""

import importlib.util
import re
import tomllib
from collections.abc import Generator

import pytest

from tests.helpers import ROOT

_MODULES = {"pytest-xdist": "xdist", "pyyaml": "yaml"}
"""Where a module has another name than its package."""


def _not_installed() -> dict[str, str]:
    """Modules that tests import and that are not there, each with the name of its package."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    packages = [re.split(r"[\[>=]", line)[0] for line in groups["tests"]]
    modules = {_MODULES.get(name, name.replace("-", "_")): name for name in packages}
    return {name: modules[name] for name in modules if not importlib.util.find_spec(name)}


NOT_INSTALLED = _not_installed()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module of tests."""
    report = yield
    reason = _lacked(report.call.excinfo.value) if report.failed else None
    if reason:
        report.outcome, report.longrepr = "skipped", (str(collector.path), None, reason)
    return report


@pytest.hookimpl(wrapper=True)
def _run(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a test."""
    try:
        return (yield)
    except Exception as error:
        reason = _lacked(error)
        if reason:
            pytest.skip(reason)
        raise


pytest_runtest_setup = pytest_runtest_call = _run


def _lacked(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = NOT_INSTALLED.get(error.name.partition(".")[0])
            if package:
                return f"needs {package}"
        error = error.__cause__ or error.__context__
    return None
