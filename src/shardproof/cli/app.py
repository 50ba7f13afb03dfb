"""The command ``shardproof``, for job scripts.

Exit codes: 0 every promise kept; 1 findings; 2 no readable promise, or wrong usage; 3 something
could not be looked at (EIO, ESTALE), or said; 130 interrupted, 143 ended by SIGTERM, 129 by SIGHUP:
in order, with nothing left behind; 141 what is printed has no reader. Of several directories the
highest counts.
"""

import sys
from importlib import import_module
from typing import NoReturn

import click

import shardproof
from shardproof._base.messages import with_kind
from shardproof.cli.commands import ShellGroup
from shardproof.cli.exits import COULD_NOT_LOOK
from shardproof.cli.signals import interruptible, listening, signals
from shardproof.cli.terminal import standard_streams

__all__ = ["app", "main"]

_COMMANDS = (
    *("validate", "seal", "repair", "formats", "fetch", "adopt", "receipts", "stage", "demo"),
    "checkpoint",
)


class _Commands(ShellGroup):
    """Commands of which each is imported when it is used, from the module that has its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*_COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"shardproof.cli.{cmd_name}"), cmd_name)
        return command


@click.group(
    "shardproof",
    cls=_Commands,
    epilog="Exit codes: 0 kept, 1 findings, 2 no readable promise or wrong usage, "
    "3 could not look (EIO, ESTALE, a host that can't be reached) or print, 130 interrupted, "
    "143 ended by SIGTERM (129: SIGHUP), 141 the output has no reader.",
)
@click.version_option(
    shardproof.__version__, message="%(prog)s %(version)s", help="Show the version."
)
def app() -> None:
    """Shards directories that prove themselves before a job reads them."""


def main() -> NoReturn:
    """Run the command line."""
    try:
        with standard_streams(), listening(), interruptible():
            app(prog_name="shardproof")
        sys.exit(0)
    except KeyboardInterrupt:
        signals.end()
    except MemoryError:
        click.echo("Could not go on: no memory is left", err=True)
        sys.exit(COULD_NOT_LOOK)
    except OSError as error:  # which no command expects, as of an import
        click.echo(f"Could not go on: {with_kind(error)}", err=True)
        sys.exit(COULD_NOT_LOOK)
    except Exception:  # a mistake of ours, which is no finding
        sys.excepthook(*sys.exc_info())
        sys.exit(COULD_NOT_LOOK)
