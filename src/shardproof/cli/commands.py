"""What the commands are made of: click's, whose help and errors `panels` draws when there are any.

An interrupt passes through: how a command ends by one, `app` knows.
"""

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from shardproof._base.messages import quoted, shown

__all__ = ["ShellCommand", "ShellGroup"]


class _Drawn(click.Command):
    """A command that draws its help, and tells on one line, and escaped, how it is used wrongly."""

    def get_help(self, ctx: click.Context) -> str:
        from shardproof.cli import panels  # noqa: PLC0415 - draws by rich, which takes long to import

        return panels.help_of(ctx)

    def main(
        self, args: Sequence[str] | None = None, prog_name: str | None = None, *_: Any, **__: Any
    ) -> NoReturn:
        """Run the command, and end by its exit code."""
        words = sys.argv[1:] if args is None else list(args)
        try:
            with self.make_context(prog_name or "shardproof", words) as context:
                self.invoke(context)
        except click.exceptions.Exit as end:
            sys.exit(end.exit_code)
        except click.UsageError as error:
            _tell(error)
            sys.exit(error.exit_code)
        sys.exit(0)


def _tell(error: click.UsageError) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.message)  # the help, in lines of ours
        return
    from shardproof.cli import panels  # noqa: PLC0415 - as above

    panels.print_error(shown(error.format_message()), error.ctx)  # it has the user's words in it


class ShellCommand(_Drawn):
    """One command."""


class ShellGroup(_Drawn, click.Group):
    """Commands with a name in common."""

    command_class = ShellCommand

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, no_args_is_help=True, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its commands, in the order in which the help has them."""
        return [*self.commands]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str, click.Command, list[str]]:
        """Return the command that the first word names, and the other words."""
        name, *others = args
        command = self.get_command(ctx, name)
        if command is None:
            import difflib  # noqa: PLC0415 - only for an error

            near = difflib.get_close_matches(name[:100], self.list_commands(ctx), 1)
            hint = f" Did you mean {quoted(near[0])}?" if near else ""
            ctx.fail(f"No such command {quoted(name)}.{hint}")
        return name, command, others
