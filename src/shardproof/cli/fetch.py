"""The command ``shardproof fetch``: one file, whole and proven, or a reason why not."""

import logging
import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from shardproof._base.messages import plain
from shardproof.cli.exits import FINDINGS, errors_end_it, warn
from shardproof.cli.paths import given_path, given_text, print_path

__all__ = ["fetch"]


def _finite(seconds: float | None) -> float | None:
    """Return seconds, unless they never end, which no lower bound keeps out."""
    if seconds is not None and not math.isfinite(seconds):
        raise typer.BadParameter(f"expected a finite number of seconds, found {seconds}")
    return seconds


def fetch(  # noqa: PLR0917 - typer makes options of them
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            parser=given_text,
            help="Of one file: https://, hf://, s3://, file:///...",
        ),
    ],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", parser=given_path, help="Where it is put.")
    ],
    digest: Annotated[
        str | None,
        typer.Option(metavar="sha256:HEX", help="The digest that proves it."),
    ] = None,
    attempts: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="At most, the first one included.")
    ] = 3,
    timeout: Annotated[
        float,
        typer.Option(min=0.001, callback=_finite, metavar="SECONDS", help="For one attempt."),
    ] = 600.0,
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            callback=_finite,
            metavar="SECONDS",
            help="For all attempts and waits together.",
        ),
    ] = None,
    stall_timeout: Annotated[
        float,
        typer.Option(
            min=0.001,
            callback=_finite,
            metavar="SECONDS",
            help="An attempt ends after so long without progress.",
        ),
    ] = 30.0,
    connections: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Most for one large file.")
    ] = 4,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say of each attempt how it ended.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only where the file is, and errors.")
    ] = False,
) -> None:
    """Fetch one file: under its name there are the right bytes, or nothing.

    Exit codes: 0 they are there; 1 they are not; 2 wrong usage, or a package is missing; 3 the host
    can't be reached, or the file may not survive a power cut; 130 interrupted, 143 ended by SIGTERM
    (129: SIGHUP).
    """
    from shardproof import fetching  # noqa: PLC0415 - not for the other commands

    limits = fetching.Limits(
        attempts=attempts,
        timeout=timeout,
        deadline=deadline,
        stall_timeout=stall_timeout,
        connections=connections,
    )
    _log_attempts(to_terminal=verbose)
    with errors_end_it("fetch", url, refused=FINDINGS):
        fetched = fetching.fetch(url, directory, digest=digest, limits=limits, progress=not quiet)
    print_path(fetched.path)
    if not fetched.proven and not quiet:
        warn(f"{_UNPROVEN}; it is {plain(fetched.digest)}")


_UNPROVEN = "nobody has stated its digest, so that only its size is right"


def _log_attempts(*, to_terminal: bool) -> None:
    logger = logging.getLogger("shardproof.fetching")
    # Without a handler, Python prints warnings; and the error at the end has all of it.
    handler = logging.StreamHandler(sys.stderr) if to_terminal else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
