"""What a path on the command line means, and how a command ends where that can't be told."""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import NoReturn

import typer

from shardproof._base import opening
from shardproof._base.messages import printable, shown, told
from shardproof.cli.paths import code_unseen
from shardproof.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    ShardproofError,
    UnsyncedError,
)

__all__ = [
    "METADATA",
    "SHOWN",
    "could_not",
    "end_with",
    "only_prefix",
    "prefixes_of",
    "refusals_end_it",
    "told_log",
    "warn",
]

METADATA = ".metadata.json"
"""How the name of a metadata file ends; what is before it is the prefix."""

SHOWN = 20
"""Of very many, so many are shown."""


def prefixes_of(path: str) -> list[str]:
    """Return the prefixes of the checkpoints that a path means.

    Args:
        path: A prefix, its metadata file, or a directory: every checkpoint in it, and in the
            directories in it.

    Raises:
        CheckpointNotFoundError: There are none.
        OSError: A directory can't be listed, or nobody could look whether there is one.
    """
    if "://" in path:
        return [path.removesuffix(METADATA)]
    path = os.path.abspath(path)
    prefix = path.removesuffix(METADATA)
    found = [prefix] if opening.is_there(prefix + METADATA) else []
    has_inside = opening.is_directory(path)
    if has_inside:
        found += _inside(path)
    if not found:
        inside = f"files in it that end with {METADATA}, or " if has_inside else ""
        problem = f"there is no checkpoint: expected {inside}'{shown(prefix)}{METADATA}'"
        tip = "a save that was not completed leaves none"
        raise CheckpointNotFoundError(f"{problem}; {tip}", path=path)
    return found


def _inside(directory: str) -> Iterator[str]:
    """Yield the prefixes in a directory, and then those in its own directories."""
    prefixes, below = _listed(directory)
    yield from prefixes
    for inner in below:
        yield from _listed(inner)[0]


def _listed(directory: str) -> tuple[list[str], list[str]]:
    with os.scandir(directory) as entries:
        found = sorted((entry.name, entry.is_dir()) for entry in entries)
    paths = [(os.path.join(directory, name), is_directory) for name, is_directory in found]
    ends = [path for path, _ in paths if path.endswith(METADATA)]
    prefixes = [path.removesuffix(METADATA) for path in ends]
    below = [path for path, is_directory in paths if is_directory]
    return [prefix for prefix in prefixes if not prefix.endswith("/")], below


def only_prefix(path: str) -> str:
    """Return the prefix that a path means; of several, name them and end."""
    prefixes = prefixes_of(path)
    if len(prefixes) > 1:
        found = "".join(f"\n  - {shown(prefix)}" for prefix in prefixes[:SHOWN])
        end_with(f"'{shown(path)}': expected one checkpoint; give one of these:{found}", 2)
    return prefixes[0]


@contextlib.contextmanager
def refusals_end_it(verb: str, path: str, code: int) -> Iterator[None]:
    """End by the exit code that an error stands for, and by its text.

    Args:
        verb: What was to be done.
        path: With what.
        code: For a checkpoint that is not as it should be.
    """
    try:
        yield
    except CheckpointNotFoundError as error:
        end_with(told(error), 2)
    except CheckpointError as error:
        end_with(told(error), _code_of(error, code))
    except UnsyncedError as error:
        end_with(told(error), 3)
    except (ShardproofError, ImportError, ValueError) as error:
        end_with(told(error), 2)
    except OSError as error:
        end_with(could_not(verb, path, error), code_unseen(error))


def _code_of(error: CheckpointError, code: int) -> int:
    """3 where nobody could look, be it that access is denied."""
    from shardproof.checkpoint.verify._inspect import is_unseen, unread  # noqa: PLC0415 - it raised the error

    return 3 if is_unseen(unread(error, "")) else code


@contextlib.contextmanager
def told_log() -> Iterator[None]:
    """Tell on standard error what the library logs meanwhile."""
    logger, told = logging.getLogger("shardproof.checkpoint"), _Told()
    logger.addHandler(told)
    try:
        yield
    finally:
        logger.removeHandler(told)


class _Told(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


def warn(problem: object) -> None:
    """Say on standard error what should be known."""
    typer.echo(printable(str(problem)), err=True)


def could_not(verb: str, path: str, error: OSError) -> str:
    """Return the words for what the operating system said."""
    return f"Could not {verb} '{shown(path)}': {told(error)}"


def end_with(problem: str, code: int) -> NoReturn:
    """Say what is wrong, and end by an exit code."""
    typer.echo(printable(problem), err=True)
    raise typer.Exit(code)
