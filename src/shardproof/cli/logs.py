"""What the library logs while a command uses it, told on standard error."""

import contextlib
import logging
from collections.abc import Iterator

from shardproof.cli.exits import warn


@contextlib.contextmanager
def log_shown(room: str, *, is_on: bool = True, level: int = logging.WARNING) -> Iterator[None]:
    """Print on standard error what a room of the library logs meanwhile."""
    logger = logging.getLogger(f"shardproof.{room}")
    # Without a handler, Python prints warnings.
    handler = _Shown() if is_on else logging.NullHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _Shown(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())
