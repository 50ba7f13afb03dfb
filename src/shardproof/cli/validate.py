"""The command ``shardproof validate``: a look at every file that is promised."""

import functools
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import click

import shardproof
from shardproof import formats
from shardproof._base.messages import printable, shown
from shardproof.cli.commands import ShellCommand
from shardproof.cli.exits import (
    COULD_NOT_LOOK,
    FINDINGS,
    KEPT,
    NO_PROMISE,
    PathOutcome,
    errors_end_it,
    outcome_of,
    warn,
)
from shardproof.cli.paths import (
    against_option,
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
from shardproof.report import BrokenFiles, Finding, Level, Report, lines_of

__all__ = ["show_reports", "validate"]


@click.command(cls=ShellCommand)
@argument("paths", "PATH", "Shards directories, or prefixes of checkpoints.", given_path, many=True)
@level_option(
    "present: each file is there and opens; complete: also its size and structure; "
    "valid: also its digest, reading every byte.",
    default="present",
)
@format_option
@click.option("--recursive", "-r", is_flag=True, help="Every shards directory below the paths.")
@against_option
@click.option("--strict", is_flag=True, help="Files that nothing promises are findings.")
@click.option(
    "--require-digests", is_flag=True, help="What can't be proven fails; needs --level valid."
)
@click.option(
    "--quick", is_flag=True, help="Pass over files that are as they were when they were sealed."
)
@follow_links_option
@workers_option("Threads. By default decided by how fast the file system is.")
@json_option
@click.option(
    "--broken",
    type=click.Choice(["names", "indices"]),
    help="Print only what has to be made again: names, or numbers such as 3,7,12-40.",
)
@click.option("--verbose", "-v", is_flag=True, help="Say of each finding what was expected.")
@quiet_option()
def validate(
    *,
    paths: Sequence[Path],
    level: Level,
    format: str | None,  # noqa: A002 - the option's name
    recursive: bool,
    against: str | None,
    strict: bool,
    require_digests: bool,
    quick: bool,
    follow_links: bool,
    workers: int | None,
    as_json: bool,
    broken: Literal["names", "indices"] | None,
    verbose: bool,
    quiet: bool,
) -> None:
    """Look at every file that shards directories promise.

    Exit codes: 0 every promise is kept; 1 findings; 2 no readable promise, or wrong usage; 3 a file
    could not be looked at, or the report not be printed; 130 interrupted, 143 ended by SIGTERM
    (129: SIGHUP). Of several paths the highest counts.
    """
    if require_digests and level != "valid":
        raise click.UsageError("--require-digests: expected --level valid")
    look = functools.partial(
        shardproof.validate,
        level=level,
        format=format,
        links="follow" if follow_links else "inside",
        against=against,
        strict=strict,
        quick=quick,
        workers=workers,
        progress=not quiet,
    )
    found = _all_below(paths) if recursive else map(os.fspath, paths)
    outcomes = [outcome_of(path, functools.partial(look, path)) for path in found]
    for outcome in outcomes:
        if outcome.result is None:
            warn(outcome.error)
    if broken:
        _print_broken(outcomes, broken)
    elif as_json:
        click.echo(json.dumps([outcome.to_dict() for outcome in outcomes], indent=2))
    elif not quiet:
        show_reports(outcomes, verbose=verbose)
    if recursive and not quiet:
        click.echo(_counted(outcomes), err=as_json or broken is not None)
    codes = [outcome.exit_code for outcome in outcomes]
    if require_digests:
        reports = [outcome.result for outcome in outcomes if outcome.result is not None]
        codes += map(_warn_of_unproven, reports)
    raise click.exceptions.Exit(max(codes))


def _all_below(paths: Iterable[Path]) -> list[str]:
    """Return the shards directories below some paths; of none among them that is said."""
    found = []
    for path in map(os.fspath, paths):
        with errors_end_it("look at", path):
            below = list(formats.find(path))
        found += below or [path]
    return found


def _counted(outcomes: Sequence[PathOutcome[Report]]) -> str:
    """Return how many directories were found below the paths, and in which state."""
    codes, n = [outcome.exit_code for outcome in outcomes], len(outcomes)
    n_whole, n_damaged = codes.count(KEPT), codes.count(FINDINGS)
    states = f"{n_whole} whole, {n_damaged} damaged, {n - n_whole - n_damaged} unreadable"
    return f"{n} director{'y' if n == 1 else 'ies'}: {states}"


def _print_broken(outcomes: Iterable[PathOutcome[Report]], what: str) -> None:
    for outcome in outcomes:
        report = outcome.result
        broken = BrokenFiles() if report is None else report.broken()
        for line in broken.names if what == "names" else filter(None, [broken.ranges]):
            click.echo(shown(line))


def _warn_of_unproven(report: Report) -> int:
    if not report.unproven:
        return KEPT
    lacking = f"{len(report.unproven)} files have no digest, such as '{shown(report.unproven[0])}'"
    warn(f"{lacking}: `shardproof seal` gives them one")
    return FINDINGS


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
    n_findings = report.n_findings
    return *about, Painted(f"{n_findings} finding" + "s" * (n_findings > 1), "bold red")


def _detail(finding: Finding) -> str:
    name = finding.to_dict()["errno"]
    code = f" ({name})" if name else ""
    said = f"expected {finding.expected}, found {finding.found}{code}"
    return f"{shown(finding.path)}: {said}; {finding.advice}"
