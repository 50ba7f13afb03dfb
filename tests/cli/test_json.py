"""JSON of one family, also of what goes wrong; exit codes and defaults in every help."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shardproof.cli.app import app
from tests.helpers.commands import run


def every(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from every(command, f"{name} ")


COMMANDS = dict(every(app))

WHOLE = {
    "validate": "validate {whole}",
    "forecast": "forecast {whole} --purge-after 9999w",
    "report": "report {whole}",
    "explain": "explain {whole}",
    "seal": "seal {whole}",
    "repair": "repair {whole} --from {damaged}",
    "formats": "formats",
    "fetch": "fetch file://{whole}/shards.json {to}",
    "adopt": "adopt {whole}",
    "receipts": "receipts {receipts}",
    "stage": "stage {whole} --to {to}",
    "checkpoint verify": "checkpoint verify {checkpoint}",
    "checkpoint show": "checkpoint show {checkpoint}",
    "checkpoint convert": "checkpoint convert {checkpoint} {to}",
    "checkpoint latest": "checkpoint latest {steps}",
    "doctor": "doctor {whole}",
    "demo": "demo",
    "completion": "completion bash",
}
WRONG = {
    "validate {damaged}": 1,
    "validate {damaged} {empty}": 2,
    "forecast {whole}": 2,
    "forecast {empty} --purge-after 1d": 2,
    "explain {empty}": 2,
    "seal {damaged}": 1,
    "seal {empty}": 2,
    "repair {damaged} --from {empty}": 1,
    "repair {empty} --from {whole}": 2,
    "formats nonsense": 2,
    "fetch file://{empty}/x.bin {to}": 1,
    "fetch nonsense://x {to}": 2,
    "adopt {empty}": 1,
    "adopt {empty}/gone": 2,
    "receipts {empty}": 2,
    "stage {damaged} --to {to}": 1,
    "stage {empty} --to {to}": 2,
    "checkpoint verify {empty}": 2,
    "checkpoint show {empty}": 2,
    "checkpoint convert {empty} {to}": 2,
    "checkpoint latest {empty}": 1,
    "validate {whole} --level none": 2,
    "validate ''": 2,
    "demo --to {whole}": 2,
    "completion tcsh": 2,
}


@pytest.fixture
def places(tmp_path: Path, make_shards_dir, make_receipts_dir, make_checkpoint) -> dict[str, Path]:
    for name in ("empty", "to"):
        (tmp_path / name).mkdir()
    checkpoint = make_checkpoint()
    return {
        "whole": make_shards_dir(2),
        "damaged": make_shards_dir(2, missing=[1]),
        "receipts": make_receipts_dir(2),
        "checkpoint": checkpoint,
        "steps": checkpoint.parent,
        "empty": tmp_path / "empty",
        "to": tmp_path / "to",
    }


def keys_of(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for each in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from keys_of(each)


def check(words: str, places: dict[str, Path], code: int) -> list[dict]:
    """Return the objects that a command prints; a directory's own names may be keys of some."""
    args = ["" if word == "''" else word.format(**places) for word in words.split()]
    done = run(*args, "--json")
    assert done.exit_code == code, done.output
    said = json.loads(done.stdout)
    objects = said if isinstance(said, list) else [said]
    assert all(each["schema_version"] == 1 for each in objects)
    assert max(each["exit_code"] for each in objects) == code
    assert all(each["ok"] == (each["exit_code"] == 0) for each in objects)
    assert [key for key in keys_of(said) if " " in key or not key] == []
    return objects


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"checkpoint"}))
def test_each_command_has_json(command: str, places) -> None:
    objects = check(WHOLE[command], places, 0)
    assert not any("error" in each for each in objects)


def test_the_demo_has_two_reports() -> None:
    said = json.loads(run("demo", "--json").stdout)
    assert said["healthy"]["ok"] is True
    assert said["damaged"]["counts"] == {
        "missing": 2,
        "empty": 1,
        "unreadable": 1,
        "not-regular": 1,
    }


@pytest.mark.parametrize("words", WRONG)
def test_what_goes_wrong_is_json_too(words: str, places) -> None:
    objects = check(words, places, WRONG[words])
    assert all(each.keys() & {"error", "findings", "report", "warnings"} for each in objects)


def test_a_password_in_an_address_is_not_repeated(tmp_path: Path) -> None:
    done = run("fetch", "ftp://me:secret@127.0.0.1:9/x", tmp_path, "--attempts", 1, "--json")
    assert done.exit_code == 3
    assert "secret" not in done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_each_help_has_exit_codes_and_defaults(command: str) -> None:
    for option in ("-h", "--help"):
        done = run(*command.split(), option)
        assert done.exit_code == 0
    codes = " ".join(done.stdout.split()).partition("Exit codes: ")[2]
    assert codes.startswith("0 ")
    assert "; 2 " in codes
    assert "; 3 " in codes
    for option in COMMANDS[command].params:
        if not isinstance(option, click.Option) or option.is_flag or option.required:
            continue
        if option.metavar == "FILE":  # without it, none is read or written
            continue
        _, said = option.get_help_record(click.Context(COMMANDS[command]))
        assert "default" in said.lower() or "detected" in said, option.name
