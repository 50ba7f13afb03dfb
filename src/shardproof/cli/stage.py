"""The command ``shardproof stage``: a shards directory on the disk of this node."""

import os
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from shardproof._base.messages import printable, shown, told
from shardproof.cli.paths import code_unseen, given_directory, given_path, print_path
from shardproof.errors import ManifestError, ShardReadError, ShardValidationError
from shardproof.report import Level

__all__ = ["stage"]


def stage(
    shards_dir: Annotated[
        Path, typer.Argument(metavar="DIR", parser=given_path, help="Shards directory.")
    ],
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=given_directory,
            help="Existing directory on a local disk. By default $TMPDIR, or /tmp.",
        ),
    ] = None,
    level: Annotated[
        Level,
        typer.Option(
            help="present: each file is there and opens; complete: also its size and structure; "
            "valid: also reads the copy back and compares digests."
        ),
    ] = "complete",
    workers: Annotated[int | None, typer.Option(min=1, help="Files copied at once: 8.")] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Draw no bar; the path is printed all the same.")
    ] = False,
) -> None:
    """Copy a shards directory to a local disk, whole and proven, and print where it is.

    What an earlier call copied is used again. In a script: dir=$(shardproof stage DIR) && train
    "$dir"; in the argument of another command, as in train "$(shardproof stage DIR)", the exit code
    is lost.

    Exit codes: 0 it is there; 1 the source doesn't keep its promises; 2 no readable promise, or
    wrong usage; 3 could not look, copy or print; 130 interrupted, 143 ended by SIGTERM
    (129: SIGHUP).
    """
    from shardproof import staging  # noqa: PLC0415 - not for the other commands

    try:
        path = staging.stage(shards_dir, to, level=level, workers=workers, progress=not quiet)
    except ManifestError as error:
        _quit(told(error), 2)
    except ShardValidationError as error:
        _quit(told(error), error.report.exit_code)
    except ShardReadError as error:
        _quit(told(error), 3)
    except OSError as error:
        problem = f"Could not stage '{shown(os.path.abspath(shards_dir))}': {told(error)}"
        _quit(problem, code_unseen(error))
    print_path(path)


def _quit(problem: str, code: int) -> NoReturn:
    typer.echo(printable(problem), err=True)
    raise typer.Exit(code)
