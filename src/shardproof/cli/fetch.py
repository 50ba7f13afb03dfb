"""The command ``shardproof fetch``: one file, whole and proven, or a reason why not."""

import logging
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from shardproof._base.messages import plain
from shardproof.cli.exits import FINDINGS, errors_end_it, log_shown, warn
from shardproof.cli.paths import argument, given_path, print_path

__all__ = ["fetch"]


def _seconds(text: str) -> Any:
    """Return an option that is a positive, finite number of seconds."""

    def finite(seconds: float | None) -> float | None:
        if seconds is not None and not math.isfinite(seconds):
            raise typer.BadParameter(f"expected a finite number of seconds, found {seconds}")
        return seconds

    return typer.Option(min=0.001, callback=finite, metavar="SECONDS", help=text)


def fetch(  # noqa: PLR0917 - typer makes options of them
    url: Annotated[str, argument("URL", "Of one file: https://, hf://, s3://, file:///...")],
    directory: Annotated[Path, argument("DIR", "Where it is put.", given_path)],
    digest: Annotated[
        str | None, typer.Option(metavar="sha256:HEX", help="The digest that proves it.")
    ] = None,
    attempts: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="At most, the first one included.")
    ] = 3,
    timeout: Annotated[float, _seconds("For one attempt.")] = 600.0,
    deadline: Annotated[float | None, _seconds("For all attempts and waits together.")] = None,
    stall_timeout: Annotated[
        float, _seconds("An attempt ends after so long without progress.")
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
    shown = log_shown("fetching", is_on=verbose, level=logging.INFO)
    with shown, errors_end_it("fetch", url, refused=FINDINGS):
        fetched = fetching.fetch(url, directory, digest=digest, limits=limits, progress=not quiet)
    print_path(fetched.path)
    if not fetched.proven and not quiet:
        problem = "no digest of it is known, so that only its size is right"
        warn(f"{problem}; it is {plain(fetched.digest)}")
