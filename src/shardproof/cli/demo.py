"""The command ``shardproof demo``: what the reports look like, on two directories of its own."""

import functools
import os
import tempfile
from pathlib import Path

import click

import shardproof
from shardproof._base import files
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_directory, is_there, names_in, real_path
from shardproof._base.work import apart
from shardproof.cli import exits, options, reports


@click.command()
@click.option(
    "--to",
    metavar="DIR",
    type=options.given_path,
    help="New or empty directory to build in and keep. By default a temporary one.",
)
def demo(to: str | None) -> None:
    """Build a healthy and a damaged directory, and validate both.

    Exit codes: 0 done; 2 wrong usage; 3 could not write, read or print.
    """
    try:
        if to is None:
            code = _demonstrate_in_passing()
            click.echo("\nBoth directories are gone again; --to DIR keeps them.")
        else:
            if is_there(to) and (not is_directory(to) or names_in(to)):
                problem = f"expected a new or empty directory, found '{shown(to)}'"
                raise click.BadParameter(problem)
            code = _demonstrate(Path(to))
            click.echo(f"\nBoth directories are kept in '{shown(real_path(to))}'.")
    except OSError as error:
        if to is not None:
            exits.end_with(exits.words_of(error, "check", to), exits.code_of(error))
        problem = f"Could not make, or remove, the directories of the demo: {told(error)}"
        tip = "set TMPDIR to a directory that you may write to, or give one by --to DIR"
        exits.end_with(f"{problem}; {tip}", exits.COULD_NOT_CHECK)
    raise click.exceptions.Exit(code)


def _demonstrate_in_passing() -> int:
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


def _demonstrate(base: Path) -> int:
    """Return 3 where a directory could not be looked at, else 0."""
    from shardproof import testing  # noqa: PLC0415 - only the demo builds directories

    whole = testing.Layout(n_shards=6)
    states = ["ok", "missing", "empty", "missing", "unreadable", "directory"]
    healthy = testing.write_layout(whole, base / "healthy" / whole.folder)
    damaged = testing.write_layout(whole.replace(states), base / "damaged" / whole.folder)
    with testing.without_root_override():
        codes = []
        for path in (healthy, damaged):
            click.echo(f"$ shardproof validate {shown(path)}")
            look = functools.partial(shardproof.validate, path)
            outcome = exits.outcome_of(os.fspath(path), look)
            reports.show([outcome])
            click.echo()
            codes.append(outcome.exit_code)
    click.echo("The same in a test run or a job prolog, for the damaged one:")
    click.echo(f"$ pytest --validate-shards --shards-dir={shown(damaged)}")
    if os.geteuid() == 0:
        click.echo("(Root may read the unreadable file; the demo gave that power up for a moment.)")
    return exits.COULD_NOT_CHECK if max(codes) > 1 else exits.KEPT
