"""The command ``shardproof``, for job scripts; its help has the exit codes."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import click

import shardproof
from shardproof._base.messages import shown, with_kind
from shardproof.cli.exits import COULD_NOT_CHECK
from shardproof.cli.output import print_json, standard_streams, warn
from shardproof.cli.signals import interruptible, listening, signals

_NO_COLOR = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
COMPLETE = "_SHARDPROOF_COMPLETE"  # the variable by which a shell asks for completions: click's
_MODULES = {
    "validate": "validate",
    "forecast": "forecast",
    "report": "report",
    "explain": "explain",
    "seal": "repair",
    "repair": "repair",
    "formats": "explain",
    "fetch": "fetch",
    "adopt": "fetch",
    "receipts": "receipts",
    "stage": "fetch",
    "demo": "demo",
    "checkpoint": "checkpoint",
    "doctor": "doctor",
    "completion": "doctor",
}
"""In which module each command is."""


class _Commands(click.Group):
    """Commands of which each is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_MODULES]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        module = import_module(f"shardproof.cli.{_MODULES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **__: Any
    ) -> NoReturn:
        """Run the command, and end by its exit code; an interrupt passes through."""
        words = sys.argv[1:] if args is None else list(args)
        if instruction := os.environ.get(COMPLETE):
            from click.shell_completion import shell_complete  # noqa: PLC0415 - a shell asks it

            sys.exit(shell_complete(self, {}, "shardproof", COMPLETE, instruction))
        try:
            with self.make_context(prog_name or "shardproof", words) as context:
                self.invoke(context)
        except click.exceptions.Exit as end:
            sys.exit(end.exit_code)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(error.exit_code)
        except click.UsageError as error:
            # On one line, and escaped: it has the user's words in it.
            problem = shown(error.format_message())
            click.UsageError(problem, error.ctx).show()
            if "--json" in words:
                print_json({"error": problem}, error.exit_code)
            sys.exit(error.exit_code)
        sys.exit(0)


@click.group(
    "shardproof",
    cls=_Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "color": False if _NO_COLOR else None,
    },
    epilog="Exit codes: 0 as expected; 1 findings; 2 nothing expected (no readable manifest), or "
    "wrong usage; 3 something could not be read (EIO, ESTALE, a host that can't be reached) or "
    "printed; 130 interrupted; 143 ended by SIGTERM, 129 by SIGHUP; 141 the reader of the output "
    "has left.",
)
@click.version_option(
    shardproof.__version__, message="%(prog)s %(version)s", help="Show the version."
)
def app() -> None:
    """Check, seal, fetch and repair directories of shards before a job reads them."""


def main() -> NoReturn:
    """Run the command line."""
    try:
        with standard_streams(), listening(), interruptible():
            app(prog_name="shardproof")
        sys.exit(0)
    except KeyboardInterrupt:
        signals.end()
    except (MemoryError, OSError) as error:  # which no command expects, as of an import
        problem = "no memory is left" if isinstance(error, MemoryError) else with_kind(error)
        warn(f"Could not go on: {problem}")
        sys.exit(COULD_NOT_CHECK)
    except Exception:  # a mistake of ours, which is no finding
        sys.excepthook(*sys.exc_info())
        sys.exit(COULD_NOT_CHECK)
