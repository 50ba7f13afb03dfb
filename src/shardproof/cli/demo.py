"""The command ``shardproof demo``: what the reports look like, on two directories of its own."""

import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import click

import shardproof
from shardproof._base import files
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_directory, is_there, names_in, real_path
from shardproof._base.work import apart
from shardproof.cli import exits, options, output, reports
from shardproof.report import Report

_Outcomes: TypeAlias = Mapping[str, exits.PathOutcome[Report]]


@click.command()
@click.option(
    "--to",
    metavar="DIR",
    type=options.given_path,
    help="New or empty directory to build in and keep. By default a temporary one.",
)
@options.json_option
def demo(*, to: str | None, as_json: bool) -> None:
    """Build a healthy and a damaged directory, and validate both.

    Exit codes: 0 done; 2 wrong usage; 3 could not write, read or print.
    """
    try:
        if to is None:
            outcomes, end = _demonstrate_in_passing(), "gone again; --to DIR keeps them"
        else:
            if is_there(to) and (not is_directory(to) or names_in(to)):
                problem = f"expected a new or empty directory, found '{shown(to)}'"
                raise click.BadParameter(problem)
            outcomes, end = _demonstrate(Path(to)), f"kept in '{shown(real_path(to))}'"
    except OSError as error:
        if to is not None:
            exits.end_with(exits.words_of(error, "check", to), exits.code_of(error))
        problem = f"Could not make, or remove, the directories of the demo: {told(error)}"
        tip = "set TMPDIR to a directory that you may write to, or give one by --to DIR"
        exits.end_with(f"{problem}; {tip}", exits.COULD_NOT_CHECK)
    seen = all(outcome.exit_code in {exits.KEPT, exits.FINDINGS} for outcome in outcomes.values())
    code = exits.KEPT if seen else exits.COULD_NOT_CHECK
    if as_json:
        output.print_json({name: each.to_dict() for name, each in outcomes.items()}, code)
    else:
        _print(outcomes)
        output.print_lines(["", f"Both directories are {end}."])
    raise click.exceptions.Exit(code)


def _demonstrate_in_passing() -> _Outcomes:
    made: list[str] = []
    try:
        apart(lambda _: made.append(tempfile.mkdtemp(prefix="shardproof-demo-")))
        return _demonstrate(Path(made[0]))
    finally:
        try:
            _remove(made)
        finally:
            _remove(made)  # what an interrupt has cut short


def _remove(directories: list[str]) -> None:
    for directory in directories:
        files.remove_tree(directory)


def _demonstrate(base: Path) -> _Outcomes:
    from shardproof import testing  # noqa: PLC0415 - only the demo builds directories

    whole = testing.Layout(n_shards=6)
    states = ["ok", "missing", "empty", "missing", "unreadable", "directory"]
    paths = {
        name: os.fspath(testing.write_layout(layout, base / name / whole.folder))
        for name, layout in {"healthy": whole, "damaged": whole.replace(states)}.items()
    }
    with testing.without_root_override():
        return {
            name: exits.outcome_of(path, functools.partial(shardproof.validate, path))
            for name, path in paths.items()
        }


def _print(outcomes: _Outcomes) -> None:
    for outcome in outcomes.values():
        click.echo(f"$ shardproof validate {shown(outcome.path)}")
        reports.show([outcome])
        click.echo()
    click.echo("The same in a test run or a job prolog, for the damaged one:")
    click.echo(f"$ pytest --validate-shards --shards-dir={shown(outcomes['damaged'].path)}")
    if os.geteuid() == 0:
        click.echo("(Root may read the unreadable file; the demo gave that power up for a moment.)")
