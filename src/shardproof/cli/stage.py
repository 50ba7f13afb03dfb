"""The command ``shardproof stage``: a shards directory on the disk of this node."""

from typing import Any

import click

from shardproof.cli.exits import errors_end_it
from shardproof.cli.output import print_path
from shardproof.cli.paths import (
    given_directory,
    given_path,
    level_option,
    quiet_option,
    workers_option,
)


@click.command()
@click.argument("path", metavar="PATH", type=given_path)
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
def stage(*, path: str, to: str | None, quiet: bool, **how: Any) -> None:
    """Copy a shards directory to a local disk, and print where.

    PATH is a shards directory, or the prefix of a checkpoint. The copy is verified; one that an
    earlier call made is used again. In a script: dir=$(shardproof stage PATH) && train "$dir"; in
    the argument of another command, as in train "$(shardproof stage PATH)", the exit code is lost.

    Exit codes: 0 it is there; 1 the source is not as expected; 2 nothing that says what to expect,
    or wrong usage; 3 could not read, copy or print.
    """
    from shardproof import staging  # noqa: PLC0415 - not for the other commands

    with errors_end_it("stage", path):
        copy = staging.stage(path, to, progress=not quiet, **how)
    print_path(copy)
