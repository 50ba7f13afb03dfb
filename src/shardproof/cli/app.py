"""The command ``shardproof``, for job scripts.

Exit codes: 0 every promise kept; 1 findings; 2 no readable promise, or wrong usage; 3 something
could not be looked at (EIO, ESTALE), or said; 130 interrupted, 143 ended by SIGTERM, 129 by SIGHUP:
in order, with nothing left behind; 141 what is printed has no reader. Of several directories the
highest counts.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import shardproof
from shardproof._base.messages import shown, with_kind
from shardproof.cli.adopt import adopt
from shardproof.cli.checkpoint import app as checkpoint
from shardproof.cli.demo import demo
from shardproof.cli.exits import COULD_NOT_LOOK
from shardproof.cli.fetch import fetch
from shardproof.cli.receipts import receipts
from shardproof.cli.signals import interruptible, listening, signals
from shardproof.cli.stage import stage
from shardproof.cli.terminal import standard_streams
from shardproof.cli.validate import validate

__all__ = ["app", "main"]

_INTERRUPTED = 130

# Of what is raised for wrong usage, typer has a public name only for this one.
_UsageError: Any = typer.BadParameter.__base__


class _Commands(TyperGroup):
    """Commands that say on one line, and escaped, what is wrong with how they are used."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _escaped():
            return super().make_context(*args, **options)

    def invoke(self, *args: Any, **options: Any) -> Any:
        with _escaped():
            return super().invoke(*args, **options)


@contextlib.contextmanager
def _escaped() -> Iterator[None]:
    """Escape the words of another library that have the user's in them."""
    try:
        yield
    except _UsageError as error:
        # Of no words at all the message is the help, in lines of ours. Its class is not public.
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        error.message = error.message if is_help else shown(error.message)
        raise


app = typer.Typer(
    cls=_Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Shards directories that prove themselves before a job reads them.",
    epilog="Exit codes: 0 kept, 1 findings, 2 no readable promise or wrong usage, "
    "3 could not look (EIO, ESTALE, a host that can't be reached) or print, 130 interrupted, "
    "143 ended by SIGTERM (129: SIGHUP), 141 the output has no reader.",
)


def main() -> None:
    """Run the command line; never returns."""
    try:
        with standard_streams(), listening(), interruptible():
            app(prog_name="shardproof")
    except KeyboardInterrupt:  # before typer begins to look after it, or in its midst
        signals.end()
    except SystemExit as end:
        if end.code == _INTERRUPTED:  # as which typer takes every signal
            signals.end()
        raise
    except MemoryError:
        typer.echo("Could not go on: no memory is left", err=True)
        sys.exit(COULD_NOT_LOOK)
    except OSError as error:  # which no command expects, as of an import
        typer.echo(f"Could not go on: {with_kind(error)}", err=True)
        sys.exit(COULD_NOT_LOOK)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shardproof {shardproof.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Shards directories that prove themselves before a job reads them."""


app.command()(validate)
app.add_typer(checkpoint, name="checkpoint")
app.command()(adopt)
app.command()(fetch)
app.command()(receipts)
app.command()(stage)
app.command()(demo)
