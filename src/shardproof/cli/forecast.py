"""The command ``forecast``: what a purge takes next."""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import click

import shardproof
from shardproof._base.work import keeping_atime
from shardproof.cli import exits, options, output
from shardproof.cli.validate import all_below

_CLOCK = ["atime", "mtime", "ctime", "birth"]  # as in `forecasting`, which is imported later
_AGE = "From which age a file goes, such as 60d, 12h, 8w; by default the policy's."
_CLOCKS = "By which it is told, by default the policy's or atime; of several, by the newest."
_LIST = "The site's own list of what it is about to delete, besides; by default none."
_POLICY = "What a site publishes, such as nersc-perlmutter; by default none."
_WITHIN = "In which time no file may go, such as 7d; by default at once."


@click.command()
@click.argument("paths", metavar="PATH...", type=options.given_path, nargs=-1, required=True)
@click.option("--purge-after", metavar="AGE", help=_AGE)
@click.option("--clock", type=click.Choice(_CLOCK), multiple=True, help=_CLOCKS)
@click.option("--policy", metavar="NAME", help=_POLICY)
@click.option("--victims", metavar="FILE", type=options.given_path, help=_LIST)
@click.option("--fail-within", metavar="TIME", default="0s", help=_WITHIN)
@options.flag("--recursive", "-r", help="Every shards directory below the paths.")
@options.format_option
@options.json_option
def forecast(*, paths: Sequence[str], recursive: bool, as_json: bool, **how: Any) -> None:
    """Say which files of shards directories a purge takes next, and when.

    Each PATH is a shards directory, or the prefix of a checkpoint. Give --purge-after, --policy or
    --victims. Times are read, and never changed.

    Exit codes: 0 no file is gone, overdue, or may go within --fail-within; 1 one is, or may; 2 no
    readable manifest, or wrong usage; 3 a file could not be looked at, or the result not be
    printed. Of several paths the highest code counts.
    """
    look = functools.partial(shardproof.forecast, **how)
    with keeping_atime(), contextlib.ExitStack() as stack:
        paths = all_below(paths, stack) if recursive else paths
    outcomes = [exits.outcome_of(path, functools.partial(look, path)) for path in paths]
    if as_json:
        output.print_json([outcome.to_dict() for outcome in outcomes])
    else:
        for result in (each.result for each in outcomes if each.result is not None):
            output.print_lines(str(result).splitlines(), "green" if result.ok else None)
    raise click.exceptions.Exit(max(outcome.exit_code for outcome in outcomes))
