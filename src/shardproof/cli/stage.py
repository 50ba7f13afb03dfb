"""The command ``shardproof stage``: a shards directory on the disk of this node."""

from pathlib import Path

import click

from shardproof.cli.commands import ShellCommand
from shardproof.cli.exits import errors_end_it
from shardproof.cli.paths import (
    argument,
    given_directory,
    given_path,
    level_option,
    print_path,
    quiet_option,
    workers_option,
)
from shardproof.report import Level

__all__ = ["stage"]


@click.command(cls=ShellCommand)
@argument("path", "PATH", "Shards directory, or prefix of a checkpoint.", given_path)
@click.option(
    "--to",
    metavar="DIR",
    type=given_directory,
    help="Existing directory on a local disk. By default $TMPDIR, or /tmp.",
)
@level_option(
    "present: each file is there and opens; complete: also its size and structure; "
    "valid: also reads the copy back and compares digests.",
    default="complete",
)
@workers_option("Files copied at once: 8.")
@quiet_option("Print only where the copy is, and errors.")
def stage(*, path: Path, to: Path | None, level: Level, workers: int | None, quiet: bool) -> None:
    """Copy a shards directory to a local disk, whole and proven, and print where it is.

    What an earlier call copied is used again. In a script: dir=$(shardproof stage PATH) && train
    "$dir"; in the argument of another command, as in train "$(shardproof stage PATH)", the exit
    code is lost.

    Exit codes: 0 it is there; 1 the source doesn't keep its promises; 2 no readable promise, or
    wrong usage; 3 could not look, copy or print; 130 interrupted, 143 ended by SIGTERM
    (129: SIGHUP).
    """
    from shardproof import staging  # noqa: PLC0415 - not for the other commands

    with errors_end_it("stage", str(path)):
        copy = staging.stage(path, to, level=level, workers=workers, progress=not quiet)
    print_path(copy)
