"""The README is one screen, and every call of the library in it runs."""

import re
from pathlib import Path

import pytest

import shardproof
from shardproof.testing.faults import serve_hub
from tests.helpers import ROOT
from tests.helpers.commands import run

README = (ROOT / "README.md").read_text()


def calls() -> list[str]:
    text = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    codes = re.findall(r"`([^`]+)`", text)
    return [code for code in codes if "shardproof." in code and "(" in code]


def test_the_readme_is_one_screen() -> None:
    lines = README.splitlines()
    assert len(lines) <= 75


def test_the_line_of_python_runs(make_shards_dir) -> None:
    [line] = [code for code in calls() if code.startswith("import shardproof")]
    exec(line, {"path": make_shards_dir(2)})
    with pytest.raises(shardproof.ShardValidationError):
        exec(line, {"path": make_shards_dir(2, missing=[1])})


def test_each_call_in_the_table_runs(make_shards_dir, tmp_path: Path, monkeypatch) -> None:
    names = {
        "shardproof": shardproof,
        "shards_dir": make_shards_dir(2, layers=(11,)),
        "output_dir": tmp_path / "out",
        "names": ["0.bin"],
    }
    monkeypatch.chdir(tmp_path)
    table = [code for code in calls() if not code.startswith("import")]
    assert len(table) == 4
    with serve_hub() as hub:
        hub.put("0.bin", b"1234", repo="org/name")
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for code in table:
            made = eval(code, dict(names))
            if hasattr(made, "close"):
                made.close()


def test_the_test_of_a_loader_is_one(make_shards_dir) -> None:
    [code] = re.findall(r"`(def test_it[^`]+)`", README)
    names: dict = {}
    exec(code, names)
    names["test_it"](make_shards_dir)


def test_each_command_has_the_options_that_it_shows() -> None:
    for command in re.findall(r"`shardproof (\w+) [^`]*`", README):
        assert run(command, "--help").exit_code == 0
