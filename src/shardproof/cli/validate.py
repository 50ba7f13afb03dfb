"""The command ``validate``, which checks every file that is expected."""

import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import click

import shardproof
from shardproof import formats as _formats
from shardproof import remote
from shardproof._base.messages import shown
from shardproof.checks import Links
from shardproof.cli import engines, exits, options, output, reports
from shardproof.report import BrokenFiles


@click.command()
@click.argument("paths", metavar="PATH...", type=options.given_path, nargs=-1, required=True)
@options.check_level_option
@options.format_option
@options.flag("--recursive", "-r", help="Check every shards directory below the paths.")
@options.against_option
@options.flag("--strict", help="Report files that are not expected.")
@options.flag("--require-digests", help="Fail for files without a digest; needs --level valid.")
@options.flag("--quick", help="Skip files that have not changed since they were sealed.")
@options.flag("--follow-links", help="Follow links that lead out of a directory.")
@options.workers_option("Threads. By default chosen by the speed of the file system.")
@options.json_option
@click.option(
    "--broken",
    type=click.Choice(["names", "indices"]),
    help="Print the damaged files, by default the report: names, or numbers such as 3,7,12-40.",
)
@options.every_option
@options.flag("--verbose", "-v", help="Add to each finding its errno and what to do.")
@options.quiet_option()
@engines.engine_options
def validate(
    *,
    paths: Sequence[str],
    recursive: bool,
    require_digests: bool,
    follow_links: bool,
    as_json: bool,
    broken: Literal["names", "indices"] | None,
    every: bool,
    verbose: bool,
    quiet: bool,
    **how: Any,
) -> None:
    """Check every expected file of shards directories.

    Each PATH is a shards directory, its address such as s3://bucket/folder, or the prefix of a
    checkpoint.

    Exit codes: 0 all is as expected; 1 findings; 2 nothing expected (no readable manifest), or
    wrong usage; 3 a file could not be read, or the report not be printed. Of several paths the
    highest code counts.
    """
    if require_digests and how["level"] != "valid":
        raise click.UsageError("--require-digests: expected --level valid")
    links: Links = "follow" if follow_links else "inside"
    look = functools.partial(shardproof.validate, links=links, progress=not quiet, **how)
    with contextlib.ExitStack() as stack, output.log_shown("fetching", is_on=False):
        paths = all_below(paths, stack) if recursive else paths
        outcomes = [exits.outcome_of(path, functools.partial(look, path)) for path in paths]
    if broken:
        for outcome in outcomes:
            files = BrokenFiles() if outcome.result is None else outcome.result.broken()
            for line in files.names if broken == "names" else filter(None, [files.ranges]):
                click.echo(shown(line))
    elif as_json:
        output.print_json([outcome.to_dict() for outcome in outcomes])
    elif not quiet:
        reports.show(outcomes, verbose=verbose, every=every)
    if (recursive or len(outcomes) > 1) and not quiet:
        click.echo(reports.totals(outcomes), err=as_json or broken is not None)
    codes = [outcome.exit_code for outcome in outcomes]
    for result in (each.result for each in outcomes if require_digests):
        if result is not None and result.unproven:
            first = f"such as '{shown(result.unproven[0])}': `shardproof seal` gives them one"
            output.warn(f"{len(result.unproven)} files have no digest, {first}")
            codes.append(exits.FINDINGS)
    raise click.exceptions.Exit(max(codes))


def all_below(paths: Iterable[str], stack: contextlib.ExitStack) -> list[str]:
    """Return the shards directories below some paths; of none among them that is said."""
    found = []
    for path in paths:
        with exits.errors_end_it("check", path):
            # Of an address the listing stays, since it is that of each directory below, too.
            below = list(_formats.find(stack.enter_context(remote.mounted(path))))
        found += below or [path]
    return found
