"""The package's own promises: versions, entry points, types, what tox pins."""

import importlib.metadata
import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

import shardproof
from tests.helpers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_stated_once_and_the_same() -> None:
    assert shardproof.__version__ == PROJECT["version"] == importlib.metadata.version("shardproof")


def test_entry_points() -> None:
    points = importlib.metadata.distribution("shardproof").entry_points
    found = {(point.group, point.name): point.value for point in points}

    assert found["console_scripts", "shardproof"] == "shardproof.__main__:main"
    assert found["pytest11", "shardproof"] == "shardproof.pytest_plugin"
    assert all(callable(point.load()) for point in points if point.group == "console_scripts")


def test_type_checkers_see_the_types() -> None:
    assert (Path(shardproof.__file__).parent / "py.typed").is_file()


def test_the_lowest_environment_pins_the_floors_of_pyproject() -> None:
    tox = ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    pins = dict(line.split("==") for line in tox["testenv:lowest"]["deps"].split())
    extras = PROJECT["optional-dependencies"]
    wanted = PROJECT["dependencies"] + extras["testing"] + extras["hf"]
    floors = {re.split(r"[\[>=]", floor)[0]: floor.split(">=")[1] for floor in wanted}

    assert {name: _padded(pin) for name, pin in pins.items()} == {
        name: _padded(floor) for name, floor in floors.items()
    }


@pytest.mark.parametrize("marker", ["once", "attack", "mutants"])
def test_what_one_environment_runs_is_run_on_a_machine_with_any_python(marker: str) -> None:
    tox = ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    selected = [
        name
        for name in tox["tox"]["env_list"].split()
        if re.search(rf' -m "?[^}}]*(?<!not ){marker}\b', _commands(tox, name))
    ]

    # An environment whose Python is not there is skipped, and its tests with it.
    assert [tox.has_option(f"testenv:{name}", "base_python") for name in selected] == [False]


def _commands(tox: ConfigParser, name: str) -> str:
    return tox.get(f"testenv:{name}", "commands", fallback="")


def _padded(version: str) -> tuple[int, ...]:
    numbers = tuple(map(int, version.split(".")))
    return (*numbers, *(0,) * (3 - len(numbers)))
