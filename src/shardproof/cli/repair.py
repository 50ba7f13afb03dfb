"""The command ``shardproof repair``: fetch what is missing or wrong, and nothing else."""

import logging
from typing import Any

import click

import shardproof
from shardproof._base.messages import printable, shown
from shardproof.cli.exits import COULD_NOT_LOOK, errors_end_it, warn
from shardproof.cli.logs import log_shown
from shardproof.cli.output import first_of, print_json
from shardproof.cli.paths import (
    against_option,
    format_option,
    given_path,
    given_text,
    json_option,
    level_option,
    quiet_option,
)
from shardproof.repairing import Repair
from shardproof.report import MOST_KEPT


@click.command()
@click.argument("path", metavar="DIR", type=given_path)
@click.option(
    "--from",
    "source",
    metavar="SOURCE",
    type=given_text,
    required=True,
    help="An address, or a directory.",
)
@level_option("How hard to look for what is wrong.", default="valid")
@against_option
@format_option
@click.option("--dry-run", is_flag=True, help="Only say what would be fetched.")
@click.option("--workers", type=click.IntRange(1, 64), metavar="N", help="Files at once.")
@json_option
@click.option("--verbose", "-v", is_flag=True, help="Say of each attempt how it ended.")
@quiet_option()
def repair(
    *,
    path: str,
    source: str,
    dry_run: bool,
    as_json: bool,
    verbose: bool,
    quiet: bool,
    **how: Any,
) -> None:
    """Fetch the files of a directory that are missing or damaged.

    Each file is fetched beside its place, and takes the name once it is verified. What can't be had
    stays as it is. Interrupted and called again it does what is left.

    Exit codes: 0 all is as expected now; 1 some is not, or in a dry run there is something to
    fetch; 2 nothing that says what to expect, or wrong usage; 3 something could not be read, or the
    source not be asked.
    """
    shown_log = log_shown("fetching", is_on=verbose, level=logging.INFO)
    with errors_end_it("repair", path, refused=COULD_NOT_LOOK), shown_log:
        done = shardproof.repair(path, source, dry_run=dry_run, progress=not quiet, **how)
    failed = [f"'{shown(name)}' is not repaired: {why}" for name, why in done.failed.items()]
    for line in first_of(failed, MOST_KEPT):
        warn(line)
    if as_json:
        print_json(done.to_dict())
    elif not quiet:
        _say(done, dry_run=dry_run)
    raise click.exceptions.Exit(done.report.exit_code or int(not done.ok))


def _say(done: Repair, *, dry_run: bool) -> None:
    if dry_run:
        lines = [f"{shown(name)}\t{'?' if size is None else size}" for name, size in done.wanted]
        for line in first_of(lines, MOST_KEPT):
            click.echo(line)
        click.echo(printable(f"{len(done.wanted)} files, {done.n_bytes} bytes"))
    else:
        click.echo(printable(f"{len(done.repaired)} of {len(done.wanted)} files fetched"))
        click.echo(printable(str(done.report)))
