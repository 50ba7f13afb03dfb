"""Paths on the command line. Typer's own make the current directory of an empty one."""

import errno
import os
import stat
import sys
from pathlib import Path
from typing import NoReturn

import typer

from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import MAX_NAME_BYTES
from shardproof._base.opening import mode_of
from shardproof._base.paths import EMPTY

__all__ = ["code_unseen", "end_unseen", "given_directory", "given_path", "given_text", "print_path"]


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
        problem = (
            f"Could not look at {quoted(text)}: the current directory can't be told: {told(error)}"
        )
        typer.echo(problem, err=True)
        raise typer.Exit(3) from error


def given_path(text: str) -> Path:
    """Return a path, unless it is empty."""
    return Path(given_text(text))


def given_directory(text: str) -> Path:
    """Return a directory that is there; end by 3 where nobody could look."""
    path = given_path(text)
    try:
        mode = mode_of(path, follow=True)
    except OSError as error:
        end_unseen(text, error)
    if not stat.S_ISDIR(mode):
        found = "something else" if mode else "nothing"
        raise typer.BadParameter(f"expected a directory, found {found} at '{shown(path)}'")
    return path


def end_unseen(text: str, error: OSError) -> NoReturn:
    """End by 3, or 2 (`code_unseen`): nobody could look at what a path leads to."""
    typer.echo(f"Could not look at '{shown(os.path.abspath(text))}': {told(error)}", err=True)
    raise typer.Exit(code_unseen(error))


def code_unseen(error: OSError) -> int:
    """Return 3, nobody could look; or 2 of a name that is too long for anything to have it."""
    names = os.fsencode(error.filename or "").split(b"/")
    is_too_long = max(map(len, names)) > MAX_NAME_BYTES  # and not the path of all above it
    return 2 if error.errno == errno.ENAMETOOLONG and is_too_long else 3


def print_path(path: str | os.PathLike[str]) -> None:
    """Print a path: to a script as the bytes that it is, on a terminal as one line of text."""
    typer.echo(shown(path) if sys.stdout.isatty() else os.fsencode(path))
