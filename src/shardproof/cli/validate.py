"""The command ``shardproof validate``: a look at every file that is promised."""

import functools
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

import click

import shardproof
from shardproof._base.messages import printable, shown
from shardproof.cli.commands import ShellCommand
from shardproof.cli.exits import COULD_NOT_LOOK, NO_PROMISE, PathOutcome, outcome_of, warn
from shardproof.cli.paths import (
    argument,
    follow_links_option,
    format_option,
    given_path,
    json_option,
    level_option,
    quiet_option,
    workers_option,
)
from shardproof.cli.terminal import Cell, Painted, console, print_lines, print_table
from shardproof.report import Finding, FindingKind, Level, Report, lines_of

__all__ = ["show_reports", "validate"]


@click.command(cls=ShellCommand)
@argument("paths", "PATH", "Shards directories, or prefixes of checkpoints.", given_path, many=True)
@level_option(
    "present: each file is there and opens; complete: also its size and structure; "
    "valid: also its digest, reading every byte.",
    default="present",
)
@format_option
@follow_links_option
@workers_option("Threads. By default decided by how fast the file system is.")
@json_option
@click.option("--verbose", "-v", is_flag=True, help="Say of each finding what was expected.")
@quiet_option()
def validate(
    *,
    paths: Sequence[Path],
    level: Level,
    format: str | None,  # noqa: A002 - the option's name
    follow_links: bool,
    workers: int | None,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Look at every file that shards directories promise.

    Exit codes: 0 every promise is kept; 1 findings; 2 no readable promise, or wrong usage; 3 a file
    could not be looked at, or the report not be printed; 130 interrupted, 143 ended by SIGTERM
    (129: SIGHUP). Of several paths the highest counts.
    """
    look = functools.partial(
        shardproof.validate,
        level=level,
        format=format,
        links="follow" if follow_links else "inside",
        workers=workers,
        progress=not quiet,
    )
    outcomes = [outcome_of(os.fspath(path), functools.partial(look, path)) for path in paths]
    for outcome in outcomes:
        if outcome.result is None:
            warn(outcome.error)
    if as_json:
        click.echo(json.dumps([outcome.to_dict() for outcome in outcomes], indent=2))
    elif not quiet:
        show_reports(outcomes, verbose=verbose)
    raise click.exceptions.Exit(max(outcome.exit_code for outcome in outcomes))


def show_reports(outcomes: Sequence[PathOutcome[Report]], *, verbose: bool) -> None:
    """Print reports; on a terminal only those with findings, and a table of all."""
    out = console(wraps=False)
    for outcome in outcomes:
        report = outcome.result
        if report is not None and not (report.ok and out is not None):
            lines = lines_of(report)
            if verbose and report.findings:
                lines = itertools.chain(lines, [""], map(_detail, report.findings))
            print_lines(out, map(printable, lines), marked=r"(?m)^.* \(\d+\):$")
    if out is not None:
        titles = ("Directory", "Format", "Level", "Files", "Verdict")
        print_lines(out, [""])
        print_table(out, titles, lambda: map(_row_of, outcomes))


def _row_of(outcome: PathOutcome[Report]) -> tuple[Cell, ...]:
    report, path = outcome.result, shown(os.path.abspath(outcome.path))
    if report is None:
        is_unread = outcome.exit_code == NO_PROMISE
        verdict = "no readable promise" if is_unread else "could not look"
        return path, "-", "-", "-", Painted(verdict, "red")
    about = path, report.format, report.level, str(report.n_files)
    if report.ok:
        return *about, Painted("ok", "green")
    if outcome.exit_code == COULD_NOT_LOOK:
        return *about, Painted("could not look at every file", "red")
    n_findings = len(report.findings)
    return *about, Painted(f"{n_findings} finding" + "s" * (n_findings > 1), "bold red")


def _detail(finding: Finding) -> str:
    name = finding.to_dict()["errno"]
    code = f" ({name})" if name else ""
    advice = _ADVICE[finding.kind] if finding.conclusive else _ADVICE_UNSEEN
    return (
        f"{shown(finding.path)}: expected {finding.expected}, found {finding.found}{code}; {advice}"
    )


_ADVICE_UNSEEN = "it could not be looked at and may be whole: look again when the disk is well"
_ADVICE = {
    FindingKind.MISSING: "make it again, or restore it",
    FindingKind.EMPTY: "make it again, or restore it",
    FindingKind.UNREADABLE: "ask its owner for permission to read it",
    FindingKind.NOT_REGULAR: "move it away, and restore the shard",
    FindingKind.IMPOSTOR: "what it is says what to do",
    FindingKind.UNWRITTEN: "its writer was killed, or power failed: make it again, or restore it",
    FindingKind.SIZE: "a copy or a writer stopped half-way: make it again, or copy it again",
    FindingKind.STRUCTURE: "the writer was killed or ran twice: make it again",
    FindingKind.DIGEST: "its bytes changed after it was written: restore it",
}
