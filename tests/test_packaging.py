"""The package's own promises: versions, entry points, types, what tox pins."""

import importlib.metadata
import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest

import shardproof
from tests.helpers import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
TIERS = ["slow", "attack", "mutants"]
"""What runs apart from the quick tests. What is marked `exhaustive` is no part of the gate."""


def test_the_version_is_stated_once_and_the_same() -> None:
    assert shardproof.__version__ == PROJECT["version"] == importlib.metadata.version("shardproof")


def test_the_command_and_the_plugin_are_entry_points() -> None:
    points = importlib.metadata.distribution("shardproof").entry_points
    found = {(point.group, point.name): point.value for point in points}

    assert found["console_scripts", "shardproof"] == "_shardproof_entries:main"
    assert found["pytest11", "shardproof"] == "_shardproof_pytest"
    assert all(callable(point.load()) for point in points if point.group == "console_scripts")


def test_type_checkers_see_the_types() -> None:
    assert (Path(shardproof.__file__).parent / "py.typed").is_file()


def test_the_lowest_environment_pins_the_floors_of_pyproject() -> None:
    tox = ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    pins = dict(line.split("==") for line in tox["testenv:lowest"]["deps"].split())
    extras = PROJECT["optional-dependencies"]
    tests = PYPROJECT["dependency-groups"]["tests"]
    wanted = PROJECT["dependencies"] + extras["testing"] + extras["hf"] + tests
    floors = {re.split(r"[\[>=]", floor)[0]: floor.split(">=")[1] for floor in wanted}

    assert {name: _padded(pin) for name, pin in pins.items()} == {
        name: _padded(floor) for name, floor in floors.items()
    }


def test_what_is_said_of_the_project_elsewhere_is_the_same() -> None:
    yaml = pytest.importorskip("yaml")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    site = re.search(r"(?m)^repo_url: (.*)$", (ROOT / "mkdocs.yml").read_text())
    assert {cited["version"]} == {PROJECT["version"]}
    assert {cited["license"]} == {PROJECT["license"]}
    assert cited["keywords"] == PROJECT["keywords"]
    assert site
    assert {cited["repository-code"], site[1]} == {PROJECT["urls"]["Repository"]}


def test_workflows_and_templates_are_yaml_and_grant_little() -> None:
    yaml = pytest.importorskip("yaml")
    for path in (ROOT / ".github").rglob("*.yml"):
        content = yaml.safe_load(path.read_text())
        if path.parent.name == "workflows":
            assert content["permissions"] == {"contents": "read"}, path
            assert all("timeout-minutes" in job for job in content["jobs"].values()), path


@pytest.mark.parametrize("marker", ["", *TIERS])
def test_on_a_machine_with_any_one_python_no_test_runs_nowhere(marker: str) -> None:
    tox = ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    classifiers = " ".join(PROJECT["classifiers"])
    pythons = {f"python{version}" for version in re.findall(r":: (3\.\d+)", classifiers)}

    # An environment whose Python is not there is skipped, and its tests with it.
    assert [
        name
        for name in tox["tox"]["env_list"].split()
        if _selects(tox.get(f"testenv:{name}", "commands", fallback=""), marker)
        and (
            "base_python" not in (section := tox[f"testenv:{name}"])
            or (
                {*section["base_python"].split(", ")} == pythons
                and section["runner"] == "virtualenv"
            )
        )
    ]


@pytest.mark.slow
def test_cases_are_a_few_of_each_test(pytester: pytest.Pytester) -> None:
    text = (ROOT / "conftest.py").read_text()
    pytester.makeconftest(re.sub("pytest_plugins = .*", "", text))
    cases = """
        import pytest
        @pytest.mark.parametrize("n", [3, 1, 2])
        def test_a(n): assert n == 3
        def test_b(): pass
    """
    pytester.makepyfile(cases)
    pytester.runpytest_subprocess("--cases", "2").assert_outcomes(passed=2, failed=1, deselected=1)
    every = pytester.runpytest_subprocess("--cases", "3", "--every", "2")
    every.assert_outcomes(passed=1, failed=1, deselected=2)


def _selects(commands: str, marker: str) -> bool:
    """Whether one of the commands runs all tests that have this one marker, or none."""
    options = PYPROJECT["tool"]["pytest"]["ini_options"]["addopts"]
    quick = next(option for option in options if option.startswith("-m=")).removeprefix("-m=")
    marked = dict.fromkeys([*TIERS, "exhaustive"], False) | {marker: True}
    runs = [line for line in commands.splitlines() if "pytest" in line and "--cases" not in line]
    chosen = [re.search(r' -m (?:"([^"]+)"|(?!pytest)(\w+))', line) for line in runs]
    return any(eval((tier[1] or tier[2]) if tier else quick, {}, marked) for tier in chosen)


def _padded(version: str) -> tuple[int, ...]:
    numbers = tuple(map(int, version.split(".")))
    return (*numbers, *(0,) * (3 - len(numbers)))
