"""What the command says of wrong usage: the words of another library, with the user's in them."""

import contextlib
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from shardproof._base.messages import shown

__all__ = ["Commands"]

# Of what is raised for wrong usage, typer has a public name only for this one.
_UsageError: Any = typer.BadParameter.__base__


class Commands(TyperGroup):
    """Commands that say on one line, and escaped, what is wrong with how they are used."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options that stand before the command."""
        with _escaped():
            return super().make_context(*args, **options)

    def invoke(self, *args: Any, **options: Any) -> Any:
        """Read those of the command, and run it."""
        with _escaped():
            return super().invoke(*args, **options)


@contextlib.contextmanager
def _escaped() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        # Of no words at all the message is the help, in lines of ours. Its class is not public.
        is_help = type(error).__name__ == "NoArgsIsHelpError"
        error.message = error.message if is_help else shown(error.message)
        raise
