"""The command ``shardproof seal``: write down the digests of a directory."""

import os
from pathlib import Path
from typing import get_args

import click

import shardproof
from shardproof._base.messages import printable, shown, told
from shardproof.cli.commands import ShellCommand
from shardproof.cli.exits import code_of, end_with, errors_end_it
from shardproof.cli.paths import (
    argument,
    first_of,
    format_option,
    given_path,
    quiet_option,
    workers_option,
)
from shardproof.sealing import Seal, SealAlgorithm

__all__ = ["seal"]


@click.command(cls=ShellCommand)
@argument("path", "DIR", "What is sealed.", given_path)
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
def seal(
    *,
    path: Path,
    algorithm: SealAlgorithm,
    update: bool,
    format: str | None,  # noqa: A002 - the option's name
    workers: int | None,
    quiet: bool,
) -> None:
    """Write down the digests of a directory's files: from then on --level valid proves them.

    `sha256sum -c` accepts the list. A directory that is not whole is refused, and one of which a
    digest or a checksum that is stated already says otherwise. A seal that was killed goes on when
    it is called again. --update keeps the digests that are written down, whatever the bytes are
    now.

    Exit codes: 0 sealed; 1 it is not as expected, or a file changed meanwhile; 2 it is sealed
    already, no readable promise, or wrong usage; 3 a file could not be read, or the list not be
    written; 130 interrupted, 143 ended by SIGTERM (129: SIGHUP).
    """
    with errors_end_it("seal", os.fspath(path)):
        try:
            sealed = shardproof.seal(
                path,
                algorithm=algorithm,
                format=format,
                update=update,
                workers=workers,
                progress=not quiet,
            )
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
