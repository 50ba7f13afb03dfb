"""The command ``shardproof adopt``: what other tools fetched need not be fetched again."""

from typing import Any

import click

from shardproof._base.messages import printable, shown, told
from shardproof.cli.exits import (
    COULD_NOT_LOOK,
    FINDINGS,
    NO_PROMISE,
    end_with,
    errors_end_it,
    warn,
)
from shardproof.cli.logs import log_shown
from shardproof.cli.output import print_json
from shardproof.cli.paths import (
    given_text,
    json_option,
    quiet_option,
    workers_option,
)


@click.command()
@click.argument("directory", metavar="DIR", type=given_text)
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
    *, directory: str, source: str | None, proven_only: bool, as_json: bool, quiet: bool, **how: Any
) -> None:
    """Take over shards that other tools fetched.

    DIR is where the shards of one source are kept. Each file is verified, or taken on your word;
    none is moved or removed. A file that the source does not have is left alone, and named.

    Exit codes: 0 taken over, but for what is left alone; 1 some have other bytes, or are no regular
    files, or none is there; 2 no such directory, or wrong usage; 3 a file could not be read, or the
    source not be asked.
    """
    from shardproof import fetching  # noqa: PLC0415 - not for the other commands

    shown_log = log_shown("fetching", is_on=not quiet)
    left_alone = log_shown("fetching.adopt", is_on=quiet)  # it is among the others if not
    ends = errors_end_it("look at", directory, refused=COULD_NOT_LOOK, as_json=as_json)
    with ends, shown_log, left_alone:
        try:
            report = fetching.adopt(directory, source, trust=not proven_only, **how)
        except (FileNotFoundError, NotADirectoryError) as error:
            end_with(told(error), NO_PROMISE, json_of=directory if as_json else None)
    if as_json:
        print_json(report.to_dict())
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
