"""On Windows one line says that it does not run there, and nothing that does not use it ends.

This is no Windows: a Python looks like that of Windows to what asks (windows/sitecustomize.py).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import _shardproof_entries
from shardproof.pytest_plugin import _hooks
from tests.helpers import ROOT

WINDOWS = ROOT / "tests/laptops/windows"
LINE = _shardproof_entries.UNSUPPORTED
# pyfakefs asks the libraries of Windows, which are not here.
PYTEST = ["-m", "pytest", "-p", "no:fakefs", "-p", "no:cacheprovider", "-W", "error"]


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(WINDOWS), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)


def test_the_line_names_where_it_runs() -> None:
    assert {"Linux", "macOS", "WSL"}.issubset(LINE.replace(";", "").split())
    assert "\n" not in LINE


@pytest.mark.parametrize("code", ["import shardproof", "from shardproof.testing import Layout"])
def test_an_import_ends_with_the_line(tmp_path: Path, code: str) -> None:
    done = run("-c", code, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"ImportError: {LINE}")


@pytest.mark.parametrize("command", [["validate", "x"], ["--version"], []])
def test_the_command_is_one_line(tmp_path: Path, command: list[str]) -> None:
    code = "import sys; from _shardproof_entries import main; main()"
    done = run("-c", code, *command, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"{LINE}\n")
    module = run("-m", "shardproof", *command, cwd=tmp_path)
    assert (module.returncode, module.stdout) == (1, "")
    assert module.stderr.count("\n") == 1
    assert LINE in module.stderr


@pytest.mark.slow
def test_a_run_that_does_not_use_the_plugin_passes(tmp_path: Path) -> None:
    """Be it one with hypothesis, or with a configuration for the plugin."""
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-config --strict-markers\nshards_level = valid\n"
        "shards_dirs = x\nshards_recursive = true\nvalidate_shards = false\nneeds_shards = skip\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import hypothesis, pytest\n"
        "@pytest.mark.shards\n"
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('shardproof')\n"
        "@pytest.mark.needs_shards('x')\n"
        "def test_of_shards(): assert False\n"
    )
    done = run(*PYTEST, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    done = run(*PYTEST, "-o", "needs_shards=fail", cwd=tmp_path)
    assert "1 passed, 1 error" in done.stdout


@pytest.mark.parametrize("how", ["option", "configuration"])
def test_a_run_that_validates_is_refused(tmp_path: Path, how: str) -> None:
    """By a usage error, with each option of the plugin, and the configuration."""
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nvalidate_shards = {how == 'configuration'}\n")
    options: dict[str, bool] = {}

    class Parser:
        def getgroup(self, *_):
            return self

        def addoption(self, name, action="store", **_):
            options[name] = action == "store_true"

        def addini(self, *_, **__): ...

    _hooks.pytest_addoption(Parser())  # type: ignore[arg-type]
    given = [name if is_alone else f"{name}=valid" for name, is_alone in options.items()]
    done = run(*PYTEST, *(given if how == "option" else ()), cwd=tmp_path)
    assert (done.returncode, done.stderr.strip()) == (pytest.ExitCode.USAGE_ERROR, f"ERROR: {LINE}")
