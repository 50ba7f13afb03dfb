"""The command ``shardproof adopt``: what other tools fetched need not be fetched again."""

import contextlib
import json
import logging
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof._base.messages import printable, shown, told
from shardproof.cli.exits import COULD_NOT_LOOK, FINDINGS, NO_PROMISE, end_with, errors_end_it, warn
from shardproof.cli.paths import given_text

if TYPE_CHECKING:
    from shardproof.report import Report

__all__ = ["adopt"]


def adopt(  # noqa: PLR0917 - typer makes options of them
    directory: Annotated[
        str,
        typer.Argument(
            metavar="DIR", parser=given_text, help="Where the shards of one source are kept."
        ),
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            parser=given_text,
            help="Who can prove them: hf://, https://, s3://...",
        ),
    ] = None,
    match: Annotated[
        str, typer.Option(metavar="PATTERN", help="Which files, by their paths below DIR.")
    ] = "*",
    proven_only: Annotated[
        bool, typer.Option("--proven-only", help="Take over nothing on your word.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Files read at once. By default the processors.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only errors; the exit code says the rest.")
    ] = False,
) -> None:
    """Take over shards that other tools fetched: proven, or on your word. Nothing is removed.

    Exit codes: 0 taken over; 1 some are not the source's, or none is there; 2 no such directory, or
    wrong usage; 3 a file could not be looked at, or the source not be asked; 130 interrupted,
    143 ended by SIGTERM (129: SIGHUP).
    """
    from shardproof import fetching  # noqa: PLC0415 - not for the other commands

    with errors_end_it("look at", directory, refused=COULD_NOT_LOOK), _logged(quiet=quiet):
        try:
            report = fetching.adopt(
                directory, source, match=match, trust=not proven_only, workers=workers
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            end_with(told(error), NO_PROMISE)
    _tell(report, as_json=as_json, quiet=quiet)
    raise typer.Exit(report.exit_code if report.n_files else FINDINGS)


def _tell(report: "Report", *, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    elif not quiet:
        typer.echo(printable(_summary(report)))
    for finding in report.findings:
        what = f"expected {finding.expected}, found {finding.found}"
        warn(f"not taken over: {shown(finding.path)}: {what}")
    if not report.n_files:
        warn(f"nothing to take over in '{shown(report.path)}'")
    for path in () if quiet else report.unproven:
        warn(f"on your word, not proven: {shown(path)}")


def _summary(report: "Report") -> str:
    n_unproven, n_findings = len(report.unproven), len(report.findings)
    counts = f"{report.n_proven} proven, {n_unproven} on your word, {n_findings} not taken over"
    return f"{counts}: '{shown(report.path)}'"


@contextlib.contextmanager
def _logged(*, quiet: bool) -> Iterator[None]:
    """Show what is logged: what the source does not have."""
    logger = logging.getLogger("shardproof.fetching")
    # Without a handler, Python prints warnings.
    handler = logging.NullHandler() if quiet else logging.StreamHandler(sys.stderr)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
