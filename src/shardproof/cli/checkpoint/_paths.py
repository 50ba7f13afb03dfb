"""Which checkpoints a path on the command line means."""

import contextlib
import logging
import os
from collections.abc import Iterator

from shardproof._base import opening
from shardproof._base.messages import shown
from shardproof.cli.exits import NO_PROMISE, end_with, warn
from shardproof.errors import CheckpointNotFoundError
from shardproof.formats.signs import METADATA

__all__ = ["SHOWN", "only_prefix", "prefixes_of", "warnings_shown"]

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
        prefixes, below = _listed(path)
        found += prefixes
        for inner in below:
            found += _listed(inner)[0]
    if not found:
        inside = f"files in it that end with {METADATA}, or " if has_inside else ""
        problem = f"there is no checkpoint: expected {inside}'{shown(prefix)}{METADATA}'"
        tip = "a save that was not completed leaves none"
        raise CheckpointNotFoundError(f"{problem}; {tip}", path=path)
    return found


def _listed(directory: str) -> tuple[list[str], list[str]]:
    """Return the prefixes in a directory, and its own directories."""
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
        end_with(f"'{shown(path)}': expected one checkpoint; give one of these:{found}", NO_PROMISE)
    return prefixes[0]


@contextlib.contextmanager
def warnings_shown() -> Iterator[None]:
    """Print on standard error what the library logs meanwhile."""
    logger, handler = logging.getLogger("shardproof.checkpoint"), _Warnings()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Warnings(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())
