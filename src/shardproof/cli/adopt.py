"""The command ``shardproof adopt``: what other tools fetched need not be fetched again."""

import json
from typing import Annotated

import typer

from shardproof._base.messages import printable, shown, told
from shardproof.cli.exits import (
    COULD_NOT_LOOK,
    FINDINGS,
    NO_PROMISE,
    end_with,
    errors_end_it,
    log_shown,
    warn,
)
from shardproof.cli.paths import argument, given_text

__all__ = ["adopt"]


def adopt(  # noqa: PLR0917 - typer makes options of them
    directory: Annotated[str, argument("DIR", "Where the shards of one source are kept.")],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            parser=given_text,
            help="What can prove them: hf://, https://, s3://...",
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
        bool,
        typer.Option("--quiet", "-q", help="Print only errors, and what is not taken over."),
    ] = False,
) -> None:
    """Take over shards that other tools fetched: proven, or on your word. Nothing is removed.

    What the source does not have is left alone, and named.

    Exit codes: 0 taken over, but for what is left alone; 1 some have other bytes, or are no regular
    files, or none is there; 2 no such directory, or wrong usage; 3 a file could not be looked at,
    or the source not be asked; 130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    from shardproof import fetching  # noqa: PLC0415 - not for the other commands

    shown_log = log_shown("fetching", is_on=not quiet)
    left_alone = log_shown("fetching.adopt", is_on=quiet)  # it is among the others if not
    ends = errors_end_it("look at", directory, refused=COULD_NOT_LOOK, as_json=as_json)
    with ends, shown_log, left_alone:
        try:
            report = fetching.adopt(
                directory, source, match=match, trust=not proven_only, workers=workers
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            end_with(told(error), NO_PROMISE, json_of=directory if as_json else None)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    elif not quiet:
        n_unproven, n_findings = len(report.unproven), len(report.findings)
        counts = f"{report.n_proven} proven, {n_unproven} on your word, {n_findings} not taken over"
        typer.echo(printable(f"{counts}: '{shown(report.path)}'"))
    for finding in report.findings:
        what = f"expected {finding.expected}, found {finding.found}"
        warn(f"not taken over: {shown(finding.path)}: {what}")
    if not report.n_files:
        warn(f"nothing to take over in '{shown(report.path)}'")
    for path in () if quiet else report.unproven:
        warn(f"on your word, not proven: {shown(path)}")
    raise typer.Exit(report.exit_code if report.n_files else FINDINGS)
