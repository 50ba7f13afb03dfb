"""The command ``shardproof adopt``: what other tools fetched need not be fetched again."""

import json

import click

from shardproof._base.messages import printable, shown, told
from shardproof.cli.commands import ShellCommand
from shardproof.cli.exits import (
    COULD_NOT_LOOK,
    FINDINGS,
    NO_PROMISE,
    end_with,
    errors_end_it,
    warn,
)
from shardproof.cli.logs import log_shown
from shardproof.cli.paths import (
    argument,
    given_text,
    json_option,
    quiet_option,
    workers_option,
)

__all__ = ["adopt"]


@click.command(cls=ShellCommand)
@argument("directory", "DIR", "Where the shards of one source are kept.")
@click.option(
    "--from",
    "source",
    metavar="URL",
    type=given_text,
    help="What can prove them: hf://, https://, s3://...",
)
@click.option(
    "--match",
    metavar="PATTERN",
    default="*",
    show_default=True,
    help="Which files, by their paths below DIR.",
)
@click.option("--proven-only", is_flag=True, help="Take over nothing on your word.")
@workers_option("Files read at once. By default the processors.")
@json_option
@quiet_option("Print only errors, and what is not taken over.")
def adopt(
    *,
    directory: str,
    source: str | None,
    match: str,
    proven_only: bool,
    workers: int | None,
    as_json: bool,
    quiet: bool,
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
        click.echo(json.dumps(report.to_dict(), indent=2))
    elif not quiet:
        n_unproven, n_findings = len(report.unproven), len(report.findings)
        counts = f"{report.n_proven} proven, {n_unproven} on your word, {n_findings} not taken over"
        click.echo(printable(f"{counts}: '{shown(report.path)}'"))
    for finding in report.findings:
        what = f"expected {finding.expected}, found {finding.found}"
        warn(f"not taken over: {shown(finding.path)}: {what}")
    if not report.n_files:
        warn(f"nothing to take over in '{shown(report.path)}'")
    for path in () if quiet else report.unproven:
        warn(f"on your word, not proven: {shown(path)}")
    raise click.exceptions.Exit(report.exit_code if report.n_files else FINDINGS)
