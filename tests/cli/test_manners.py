"""Odd trees: every command says what is wrong, and ends by a code that it has."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT


def forgotten(place: Path, first: int, every: int) -> list[str]:
    """Return the cases in which a command forgot its manners, in a process that tells of leaks."""
    command = [sys.executable, "-X", "dev", "-m", "tests.cli.manners"]
    numbers = map(str, (first, every))
    run = subprocess.run(
        [*command, str(place), *numbers], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stderr.split()[-2]) > 80, run.stderr
    return run.stdout.splitlines()


@pytest.mark.slow
def test_a_few_odd_trees_and_every_command(tmp_path: Path) -> None:
    assert forgotten(tmp_path, 0, 500) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", [1, 12])
def test_many_odd_trees_and_every_command(tmp_path: Path, first: int) -> None:
    assert forgotten(tmp_path, first, 37) == []


def test_a_mistake_of_ours_is_no_finding() -> None:
    """Python ends by 1 for it, which a job would take for findings."""
    code = (
        "import sys, shardproof; shardproof.validate = lambda *_, **__: {}[0]; "
        "from shardproof.cli.app import main; sys.argv = ['shardproof', 'validate', '.']; main()"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (run.returncode, "KeyError" in run.stderr) == (3, True)
