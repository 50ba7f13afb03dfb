"""The command ``shardproof fetch``: one file, whole and proven, or a reason why not."""

import logging
import math
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shardproof._base.messages import WRONG_USAGE, plain, printable, told
from shardproof._base.progress import bar
from shardproof._base.work import apart
from shardproof.cli.paths import code_unseen, given_path, given_text, print_path
from shardproof.errors import FetchError, SourceError, UnsyncedError

if TYPE_CHECKING:
    from shardproof.fetching import Fetched, Limits

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
    sha256: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="The digest that proves it."),
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, max=999, metavar="N", help="Attempts after the first.")
    ] = 2,
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
    stall: Annotated[
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
        bool, typer.Option("--quiet", "-q", help="Print only errors; the exit code says the rest.")
    ] = False,
) -> None:
    """Fetch one file: under its name there are the right bytes, or nothing."""
    from shardproof.fetching import Limits, split_name  # noqa: PLC0415 - not for other commands

    limits = Limits(
        max_download_retries=retries + 1,
        download_timeout=timeout,
        deadline=deadline,
        stall_after=stall,
        connections=connections,
    )
    _log_attempts(to_terminal=verbose)
    try:
        # The main thread's, which puts the terminal right even if it does not wait for the work.
        with bar(split_name(url)[1]) if not quiet else nullcontext(_show_nothing) as show:
            fetched = apart(
                lambda stop: _fetched(url, directory, sha256, limits, stop=stop, show=show)
            )
    except (ImportError, ValueError) as error:
        typer.echo(printable(told(error)), err=True)
        raise typer.Exit(2) from None
    except FetchError as error:
        typer.echo(printable(told(error)), err=True)
        raise typer.Exit(_exit_code(error)) from error
    if not quiet:
        _tell(fetched)


def _exit_code(error: FetchError) -> int:
    if isinstance(error.__cause__, UnsyncedError):
        return 3  # the right bytes are there, perhaps not for good
    return 2 if _is_wrong_usage(error) else 1


def _is_wrong_usage(error: FetchError) -> bool:
    """Whether a file system could not even be made of the address, or for want of a package.

    Or the file can't have such a name here.
    """
    cause = error.__cause__
    if isinstance(cause, OSError):
        return code_unseen(cause) == 2
    return (
        isinstance(cause, SourceError)
        and cause.again == "no"
        and isinstance(cause.__cause__, WRONG_USAGE)
    )


def _fetched(
    url: str,
    directory: Path,
    sha256: str | None,
    limits: "Limits",
    *,
    stop: threading.Event,
    show: Callable[[int, int], None],
) -> "Fetched":
    from shardproof.fetching import fetch_shard, open_source, split_name  # noqa: PLC0415

    def on_bytes(n_bytes: int, size: int | None) -> None:
        if not stop.is_set():  # then the bar may be gone
            show(n_bytes, size or n_bytes)

    folder, name = split_name(url)
    digest = None if sha256 is None else f"sha256:{sha256.removeprefix('sha256:')}"
    source = open_source(folder)
    try:
        return fetch_shard(
            source,
            name,
            directory / name,
            digest=digest,
            limits=limits,
            stop=stop,
            on_bytes=on_bytes,
        )
    finally:
        source.close()


def _show_nothing(done: int, total: int) -> None:
    """Draw nothing."""


def _tell(fetched: "Fetched") -> None:
    """The path alone goes to standard output, for scripts."""
    print_path(fetched.path)
    if not fetched.proven:
        typer.echo(f"{_UNPROVEN}; it is {plain(fetched.digest)}", err=True)


_UNPROVEN = "nobody has stated its digest, so that only its size is right"


def _log_attempts(*, to_terminal: bool) -> None:
    logger = logging.getLogger("shardproof.fetching")
    # Without a handler, Python prints warnings; and the error at the end has all of it.
    handler = logging.StreamHandler(sys.stderr) if to_terminal else logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
