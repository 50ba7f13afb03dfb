"""Paths on the command line. Typer's own make the current directory of an empty one."""

import os
import stat
from pathlib import Path

import typer

from shardproof._paths import EMPTY

__all__ = ["given_directory", "given_path", "given_text"]


def given_text(text: str) -> str:
    """Return a path or an address as it was given, unless it is empty."""
    if not text:
        raise typer.BadParameter(EMPTY)
    return text


def given_path(text: str) -> Path:
    """Return a path, unless it is empty."""
    return Path(given_text(text))


def given_directory(text: str) -> Path:
    """Return a directory that is there."""
    path = given_path(text)
    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        raise typer.BadParameter(str(error)) from error
    if not is_directory:
        raise typer.BadParameter(f"expected a directory, found something else at '{path}'")
    return path
