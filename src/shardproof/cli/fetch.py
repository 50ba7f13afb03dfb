"""The command ``shardproof fetch``: one file, whole and proven, or a reason why not."""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from shardproof._base.messages import plain
from shardproof.cli.commands import ShellCommand
from shardproof.cli.exits import FINDINGS, errors_end_it, warn
from shardproof.cli.logs import log_shown
from shardproof.cli.paths import argument, given_path, print_path, quiet_option

__all__ = ["fetch"]

F = TypeVar("F", bound=Callable[..., Any])


def _seconds(name: str, text: str, default: float | None = None) -> Callable[[F], F]:
    """Return an option that is a positive, finite number of seconds."""

    def finite(_: object, __: object, seconds: float | None) -> float | None:
        if seconds is not None and not math.isfinite(seconds):
            raise click.BadParameter(f"expected a finite number of seconds, found {seconds}")
        return seconds

    return click.option(
        name,
        type=click.FloatRange(min=0.001),
        callback=finite,
        metavar="SECONDS",
        default=default,
        show_default=default is not None,
        help=text,
    )


def _number(name: str, text: str, default: int) -> Callable[[F], F]:
    """Return an option that is a number from 1 to 1000."""
    numbers = click.IntRange(1, 1000)
    return click.option(
        name, type=numbers, metavar="N", default=default, show_default=True, help=text
    )


@click.command(cls=ShellCommand)
@argument("url", "URL", "Of one file: https://, hf://, s3://, file:///...")
@argument("directory", "DIR", "Where it is put.", given_path)
@click.option("--digest", metavar="sha256:HEX", help="The digest that proves it.")
@_number("--attempts", "At most, the first one included.", 3)
@_seconds("--timeout", "For one attempt.", 600.0)
@_seconds("--deadline", "For all attempts and waits together.")
@_seconds("--stall-timeout", "An attempt ends after so long without progress.", 30.0)
@_number("--connections", "Most for one large file.", 4)
@click.option("--verbose", "-v", is_flag=True, help="Say of each attempt how it ended.")
@quiet_option("Print only where the file is, and errors.")
def fetch(
    *,
    url: str,
    directory: Path,
    digest: str | None,
    attempts: int,
    timeout: float,
    deadline: float | None,
    stall_timeout: float,
    connections: int,
    verbose: bool,
    quiet: bool,
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
