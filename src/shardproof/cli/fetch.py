"""The command ``shardproof fetch``: one file, whole and proven, or a reason why not."""

import logging
from typing import Any

import click

from shardproof._base.messages import plain
from shardproof.cli.exits import FINDINGS, errors_end_it, warn
from shardproof.cli.logs import log_shown
from shardproof.cli.output import print_path
from shardproof.cli.paths import given_path, given_text, quiet_option

_seconds: dict[str, Any] = {"type": float, "metavar": "SECONDS", "show_default": True}
_number: dict[str, Any] = {"type": int, "metavar": "N", "show_default": True}


@click.command()
@click.argument("url", metavar="URL", type=given_text)
@click.argument("directory", metavar="DIR", type=given_path)
@click.option("--digest", metavar="sha256:HEX", help="The digest that proves it.")
@click.option("--attempts", default=3, help="At most, the first one included.", **_number)
@click.option("--timeout", default=600.0, help="For one attempt.", **_seconds)
@click.option("--deadline", help="For all attempts and waits together.", **_seconds)
@click.option(
    "--stall-timeout", default=30.0, help="An attempt ends after so long in vain.", **_seconds
)
@click.option("--connections", default=4, help="Most for one large file.", **_number)
@click.option("--verbose", "-v", is_flag=True, help="Say of each attempt how it ended.")
@quiet_option("Print only where the file is, and errors.")
def fetch(
    *, url: str, directory: str, digest: str | None, verbose: bool, quiet: bool, **limits: Any
) -> None:
    """Fetch one file into DIR: the right bytes, or nothing.

    URL is that of one file: https://, hf://, s3://, file:///...

    Exit codes: 0 it is there; 1 it is not; 2 wrong usage, or a package is missing; 3 the host can't
    be reached, or the file may not survive a power cut.
    """
    from shardproof import fetching  # noqa: PLC0415 - not for the other commands

    shown = log_shown("fetching", is_on=verbose, level=logging.INFO)
    with shown, errors_end_it("fetch", url, refused=FINDINGS):
        agreed = fetching.Limits(**limits)
        fetched = fetching.fetch(url, directory, digest=digest, limits=agreed, progress=not quiet)
    print_path(fetched.path)
    if not fetched.proven and not quiet:
        problem = "no digest of it is known, so that only its size is right"
        warn(f"{problem}; it is {plain(fetched.digest)}")
