"""Paths on the command line. Typer's own make the current directory of an empty one."""

import os
import stat
import sys
from pathlib import Path

import typer

from shardproof._base.messages import quoted, shown, told
from shardproof._base.opening import EMPTY, mode_of
from shardproof.cli.exits import COULD_NOT_LOOK, end_with, errors_end_it

__all__ = ["given_directory", "given_path", "given_text", "print_path"]


def given_text(text: str) -> str:
    """Return a path or an address as it was given, unless it is empty or leads nowhere."""
    if not text:
        raise typer.BadParameter(EMPTY)
    if "://" not in text and not os.path.isabs(text):
        _need_current_directory(text)
    return text


def _need_current_directory(text: str) -> None:
    """End by 3 where it is gone, as a job's may be: what a relative path means can't be told."""
    try:
        os.getcwd()
    except OSError as error:
        problem = f"the current directory can't be told: {told(error)}"
        end_with(f"Could not look at {quoted(text)}: {problem}", COULD_NOT_LOOK)


def given_path(text: str) -> Path:
    """Return a path, unless it is empty."""
    return Path(given_text(text))


def given_directory(text: str) -> Path:
    """Return a directory that is there; end by 3 where nobody could look."""
    path = given_path(text)
    with errors_end_it("look at", text):
        mode = mode_of(path, follow=True)
    if not stat.S_ISDIR(mode):
        found = "something else" if mode else "nothing"
        raise typer.BadParameter(f"expected a directory, found {found} at '{shown(path)}'")
    return path


def print_path(path: str | os.PathLike[str]) -> None:
    """Print a path: to a script as the bytes that it is, on a terminal as one line of text."""
    typer.echo(shown(path) if sys.stdout.isatty() else os.fsencode(path))
