"""The command ``shardproof seal``: write down the digests of a directory."""

from typing import Any, get_args

import click

import shardproof
from shardproof._base.messages import printable, shown, told
from shardproof.cli.exits import code_of, end_with, errors_end_it
from shardproof.cli.output import first_of
from shardproof.cli.paths import (
    format_option,
    given_path,
    quiet_option,
    workers_option,
)
from shardproof.sealing import Seal, SealAlgorithm


@click.command()
@click.argument("path", metavar="DIR", type=given_path)
@click.option(
    "--algorithm",
    type=click.Choice(get_args(SealAlgorithm)),
    default="sha256",
    show_default=True,
    help="blake3 is the fastest that proves; xxh3-128 is against accidents only.",
)
@click.option("--update", is_flag=True, help="Add files that the list does not have.")
@format_option
@workers_option("Files that are read at once. By default one for each processor.")
@quiet_option()
def seal(*, path: str, update: bool, quiet: bool, **how: Any) -> None:
    """Write down the digests of a directory's files.

    From then on --level valid verifies them, and `sha256sum -c` accepts the list. A directory with
    findings is refused, also one in which a digest or a checksum that is stated already differs. A
    seal that was killed goes on when it is called again. --update keeps the digests that are
    written down, whatever the bytes are now.

    Exit codes: 0 sealed; 1 it is not as expected, or a file changed meanwhile; 2 it is sealed
    already, nothing says what to expect, or wrong usage; 3 a file could not be read, or the list
    not be written.
    """
    with errors_end_it("seal", path):
        try:
            sealed = shardproof.seal(path, update=update, progress=not quiet, **how)
        except shardproof.ShardValidationError as error:
            end_with(f"It is not sealed, for it is not as expected. {told(error)}", code_of(error))
    if not quiet:
        _say(sealed, update=update)


def _say(sealed: Seal, *, update: bool) -> None:
    resumed = f", {sealed.n_resumed} of them as an earlier attempt read them"
    added = f"{len(sealed.added)} added" if update else f"{sealed.n_files} files"
    more = resumed if sealed.n_resumed else ""
    click.echo(printable(f"'{shown(sealed.list_path)}': {added}{more}"))
    for line in first_of([f"  - {shown(name)}" for name in sealed.added]) if update else ():
        click.echo(line)
    left_out = [f"'{shown(name)}' ({why})" for name, why in sealed.left_out.items()]
    if left_out:
        click.echo(printable(f"left out: {', '.join(map(str.strip, first_of(left_out)))}"))
