"""The suite of benchmarks finds its scripts, compares records, and draws what the tables say."""

import json
import subprocess
import sys

import pytest

from benchmarks import __main__ as suite
from benchmarks import plots
from tests.helpers import ROOT


def test_it_knows_each_script_that_measures() -> None:
    assert {"checkpoint", "loaders", "proving", "staging", "validate"} <= suite.scripts().keys()
    assert all(suite.scripts().values())


def test_a_ratio_stands_beside_that_of_the_record() -> None:
    record = json.loads((ROOT / "benchmarks/loaders.json").read_text())
    now = json.loads(json.dumps(record))
    contender = now["sections"][0]["contenders"][1]
    contender["ratio"] = 9.99
    del now["sections"][1]
    machines, first, second, *_ = suite.compared(record, now)
    assert machines == "now: AMD EPYC, 2 cores; then: AMD EPYC, 2 cores"
    assert first.endswith(": 1.00, was 1.00")
    assert f"{contender['what']}: 9.99, was " in second


@pytest.mark.exhaustive
def test_a_benchmark_runs_and_prints_json() -> None:
    command = "-m benchmarks staging --mib 1 --files 2 --rounds 1 --json"
    done = subprocess.run([sys.executable, *command.split()], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["machine"]["cpu"]
    assert found["compared"] == ["no record"]


@pytest.mark.parametrize("page", plots.PAGES)
def test_each_table_has_its_plot(page: str) -> None:
    """`python benchmarks/plots.py` draws them anew."""
    text = (ROOT / "docs" / page).read_text()
    again, drawn = plots.plotted(page, text)
    assert again == text
    there = {path.name: path.read_text() for path in (ROOT / "docs/plots").glob(f"{page[:-3]}-*")}
    assert drawn == there
    assert all("prefers-color-scheme: dark" in svg for svg in drawn.values())
