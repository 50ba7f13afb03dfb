"""The command ``report``: forms on standard output and in files, and what is never overwritten."""

import json
import os
from pathlib import Path

import pytest

import shardproof
from shardproof.testing.faults import FileSystemFaults
from tests.cli.test_app import on_terminal
from tests.helpers import ROOT
from tests.helpers.commands import run, untimed


@pytest.fixture
def damaged(make_shards_dir) -> Path:
    return make_shards_dir(5, missing_shards=[1], empty_shards=[2])


def test_without_an_option_there_is_a_map_and_what_validate_says(damaged: Path) -> None:
    result = run("report", damaged)
    map_, _, text = result.stdout.partition("present: ")
    assert (result.exit_code, result.stderr) == (1, "")
    assert map_ == "·ME··\n· As expected (3)\nM Missing files (1)\nE Empty files (1)\n\n"
    assert untimed(f"present: {text}") == untimed(run("validate", damaged).stdout)


def test_a_terminal_that_says_it_has_no_columns_gets_a_map_too(damaged: Path) -> None:
    assert "· As expected (3)" in on_terminal("report", damaged, COLUMNS="0", NO_COLOR="1")


@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_it_has_colors_unless_they_are_not_wanted(damaged, no_color: str) -> None:
    text = on_terminal("report", damaged, **({"NO_COLOR": no_color} if no_color else {}))
    assert ("\x1b[1;31mM" in text, "·" in text) == (not no_color, True)


def test_files_are_written_whole_and_again(damaged: Path, tmp_path: Path) -> None:
    targets = {form: tmp_path / f"out.{form}" for form in ("html", "junit", "prometheus")}
    options = [word for form, path in targets.items() for word in (f"--{form}", path)]
    for n_findings in (2, 3):
        result = run("report", damaged, *options)
        assert (result.exit_code, result.stderr) == (1, "")
        assert untimed(result.stdout) == untimed(run("validate", damaged).stdout)
        assert f"{n_findings} findings".encode() in targets["html"].read_bytes()
        assert f'failures="{n_findings}"'.encode() in targets["junit"].read_bytes()
        assert f'kind="missing"}} {n_findings - 1}' in targets["prometheus"].read_text()
        (damaged / "acts000003.bin").unlink(missing_ok=True)
    assert sorted(path.name for path in tmp_path.glob("out.*")) == sorted(
        p.name for p in targets.values()
    )


def test_what_this_command_did_not_write_is_kept(damaged: Path, tmp_path: Path) -> None:
    for path in (damaged / "acts000000.bin", damaged, Path("/dev/null"), tmp_path / "fifo"):
        if path.name == "fifo":
            os.mkfifo(path)
        before = path.read_bytes() if path.is_file() else b""
        result = run("report", damaged, "--html", path)
        assert result.exit_code == 2
        assert "expected a new file, found another one" in result.stderr
        assert not path.is_file() or path.read_bytes() == before


def test_one_file_for_two_forms_is_refused(damaged: Path, tmp_path: Path) -> None:
    result = run("report", damaged, "--html", tmp_path / "x", "--junit", tmp_path / "x")
    assert (result.exit_code, [*tmp_path.glob("x")]) == (2, [])
    assert "found one for two" in result.stderr


def test_a_page_that_can_not_be_written_ends_by_3(damaged: Path, tmp_path: Path) -> None:
    result = run("report", damaged, "--html", tmp_path / "gone" / "out.html")
    assert result.exit_code == 3
    assert "Could not write" in result.stderr


def test_json_is_the_report_and_serves_as_the_earlier_one(damaged: Path, tmp_path: Path) -> None:
    result = run("report", damaged, "--json")
    assert json.loads(result.stdout) == shardproof.validate(damaged).to_dict()
    old = tmp_path / "old.json"
    old.write_text(result.stdout)
    (damaged / "acts000004.bin").unlink()
    (damaged / "acts000001.bin").write_bytes(b"x")
    text = run("report", damaged, "--since", old).stdout
    assert text.endswith(
        f"Since '{old}': 1 broke\n  - acts000004.bin\nSince '{old}': 1 healed\n  - acts000001.bin\n"
    )

    (tmp_path / "link.json").symlink_to(old)
    data = json.loads(run("report", damaged, "--since", tmp_path / "link.json", "--json").stdout)
    since = {"broke": ["acts000004.bin"], "healed": ["acts000001.bin"], "notes": []}
    assert data == shardproof.validate(damaged).to_dict() | {"since": since}
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(data, json.loads((ROOT / "docs" / "report-schema.json").read_text()))


def test_without_a_report_json_says_why(tmp_path: Path) -> None:
    result = run("report", tmp_path / "gone", "--json")
    assert (result.exit_code, json.loads(result.stdout)["exit_code"]) == (2, 2)
    assert "there is no such directory" in result.stderr


def test_an_earlier_report_that_is_none_ends_by_2(damaged: Path, tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    result = run("report", damaged, "--since", tmp_path / "old.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "old.json" in result.stderr


def test_annotations_and_silence(damaged: Path) -> None:
    assert [
        line.partition("::/")[0] for line in run("report", damaged, "--github").stdout.splitlines()
    ] == [
        "::error title=Missing files (1)",
        "::error title=Empty files (1)",
    ]
    result = run("report", damaged, "-q")
    assert (result.exit_code, result.output) == (1, "")


def test_level_and_what_is_expected_are_those_of_validate(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    shardproof.seal(tmp_path)
    (tmp_path / "a").write_bytes(b"2")
    assert run("report", tmp_path).exit_code == 0
    assert "D Files with another digest (1)" in run("report", tmp_path, "--level", "valid").stdout
    other = run("report", tmp_path, "--against", tmp_path / "SHA256SUMS", "--level", "valid")
    assert "D Files with another digest (1)" in other.stdout


def test_what_could_not_be_read_ends_by_3(damaged: Path) -> None:
    with FileSystemFaults(damaged) as faults:
        faults.fail("open", 5, match="acts000003.bin", times=None)
        result = run("report", damaged)
    assert result.exit_code == 3
    assert "! Could not be checked (1)" in result.stdout
