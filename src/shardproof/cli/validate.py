"""The command ``shardproof validate``: a look at every file that is promised."""

import functools
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

import shardproof
from shardproof._base.messages import printable, shown
from shardproof.cli.exits import COULD_NOT_LOOK, NO_PROMISE, PathOutcome, outcome_of, warn
from shardproof.cli.paths import QuietOption, argument, given_path
from shardproof.cli.terminal import console, print_lines
from shardproof.report import Finding, FindingKind, Level, Report, lines_of

__all__ = ["show_reports", "validate"]


def validate(  # noqa: PLR0917 - typer makes options of them
    paths: Annotated[
        list[Path], argument("PATH", "Shards directories, or prefixes of checkpoints.", given_path)
    ],
    level: Annotated[
        Level,
        typer.Option(
            help="present: each file is there and opens; complete: also its size and structure; "
            "valid: also its digest, reading every byte."
        ),
    ] = "present",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Threads. By default decided by how fast the file system is."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say of each finding what was expected.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Look at every file that shards directories promise.

    Exit codes: 0 every promise is kept; 1 findings; 2 no readable promise, or wrong usage; 3 a file
    could not be looked at, or the report not be printed; 130 interrupted, 143 ended by SIGTERM
    (129: SIGHUP). Of several paths the highest counts.
    """
    look = functools.partial(shardproof.validate, level=level, workers=workers, progress=not quiet)
    outcomes = [outcome_of(os.fspath(path), functools.partial(look, path)) for path in paths]
    for outcome in outcomes:
        if outcome.result is None:
            warn(outcome.error)
    if as_json:
        typer.echo(json.dumps([outcome.to_dict() for outcome in outcomes], indent=2))
    elif not quiet:
        show_reports(outcomes, verbose=verbose)
    raise typer.Exit(max(outcome.exit_code for outcome in outcomes))


def show_reports(outcomes: Sequence[PathOutcome[Report]], *, verbose: bool) -> None:
    """Print reports; on a terminal only those with findings, and a table of all."""
    out = console(wraps=False)
    for outcome in outcomes:
        report = outcome.result
        if report is not None and not (report.ok and out.is_terminal):
            lines = lines_of(report)
            if verbose and report.findings:
                lines = itertools.chain(lines, [""], map(_detail, report.findings))
            print_lines(out, map(printable, lines), _painted)
    if out.is_terminal:
        table = Table("Directory", "Format", "Level", "Files", "Verdict", box=None, pad_edge=False)
        for outcome in outcomes:
            report, about = outcome.result, ("-", "-", "-")
            if report is None:
                is_unread = outcome.exit_code == NO_PROMISE
                verdict = Text("no readable promise" if is_unread else "could not look", "red")
            elif report.ok:
                verdict = Text("ok", "green")
            elif outcome.exit_code == COULD_NOT_LOOK:
                verdict = Text("could not look at every file", "red")
            else:
                n_findings = len(report.findings)
                verdict = Text(f"{n_findings} finding" + "s" * (n_findings > 1), "bold red")
            if report is not None:
                about = report.format, report.level, str(report.n_files)
            path = Text(shown(os.path.abspath(outcome.path)), overflow="fold")
            table.add_row(path, *map(Text, about), verdict)
        out.print(Padding(table, (1, 0, 0, 0)))


def _painted(line: str) -> Text:
    text = Text(line)
    text.highlight_regex(r"(?m)^.* \(\d+\):$", "bold red")
    return text


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
    FindingKind.SIZE: "a copy or a writer stopped half-way: make it again, or copy it again",
    FindingKind.STRUCTURE: "the writer was killed or ran twice: make it again",
    FindingKind.DIGEST: "its bytes changed after it was written: restore it",
}
