"""What the command writes to, and how: streams that may be gone, lines, tables, what is logged.

The same text goes to a terminal, a file and a pipe; click takes the colours out where no terminal
is. Lines are as long as they are, and are written one by one, because there may be millions.
"""

import contextlib
import errno
import io
import json
import os
import select
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import click

from shardproof._base.messages import printable, shown, told
from shardproof.report import SCHEMA_VERSION

SHOWN = 20  # how many are shown of a long list

_BROKEN_PIPE = 141  # 128 + SIGPIPE: what a shell says of a program that this signal ended
_COULD_NOT_SAY = 3
_WIDEST = 255  # places that a column is filled up to; the longest name that most file systems have


class OutputError(Exception):
    """Standard output takes no more. No `OSError`: that would be taken for one of the shards'."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"shardproof: could not write to standard output: {told(error)}")
        self.exit_code = _BROKEN_PIPE if error.errno == errno.EPIPE else _COULD_NOT_SAY


class _Patient(io.FileIO):
    """A descriptor to write to, though the other end of a pipe made it one that never waits."""

    # The first write to standard output that fails ends the command. That standard error fails can
    # be said nowhere; the exit code still counts. Nothing is written after a write that was
    # interrupted, or failed: its reader may never come. Only standard error goes on if it has room,
    # as there the cursor of a terminal may have to be shown again.
    _is_lost = False

    def write(self, data: Any) -> int:
        if self._is_lost:
            return len(data)
        self._is_lost = True
        try:
            while (n_bytes := super().write(data)) is None:
                select.select([], [self], [])
        except OSError as error:
            if self.fileno() == 1:
                raise OutputError(error) from error
            n_bytes = len(data)  # are lost; the next ones may find room
        except KeyboardInterrupt:
            self._is_lost = self.fileno() != 2 or not select.select([], [self], [], 0)[1]
            raise
        self._is_lost = False
        return n_bytes


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Give the command streams that end it by 141 or 3, and never by a traceback."""
    sys.stdout = _stream(1, sys.stdout)
    sys.stderr = _stream(2, sys.stderr)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError as error:
        if error.exit_code == _COULD_NOT_SAY:
            sys.stderr.write(f"{told(error)}\n")
        sys.exit(error.exit_code)


def _stream(fd: int, old: TextIO | None) -> TextIO:
    """Return a stream of text for a descriptor; ``old`` is Python's own, None if it is closed."""
    if old is None:
        # What can't be written to; or a file of a shards directory may get this descriptor.
        nothing = os.open(os.devnull, os.O_RDONLY)
        if nothing != fd:
            os.dup2(nothing, fd)
            os.close(nothing)
    raw = _Patient(fd, "wb", closefd=False)
    # A path is bytes and need not be text; it must not end the report in a traceback.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding if old is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=fd == 2 or raw.isatty(),
    )


def warn(problem: object) -> None:
    """Print what should be known on standard error."""
    click.echo(printable(str(problem)), err=True)


@contextlib.contextmanager
def log_shown(room: str, *, is_on: bool = True, level: str = "WARNING") -> Iterator[None]:
    """Print on standard error what a room of the library logs meanwhile."""
    import logging  # noqa: PLC0415 - a look at a directory needs none

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            warn(record.getMessage())

    logger = logging.getLogger(f"shardproof.{room}")
    # Without a handler, Python prints warnings.
    handler = Shown() if is_on else logging.NullHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def print_lines(lines: Iterable[str], color: str | None = None) -> None:
    """Print lines of which nothing moves the cursor; of a report its titles are red."""
    for line in map(printable, lines):
        is_title = color is None and line.endswith("):") and not line.startswith(" ")
        paint = "red" if is_title else color
        click.secho(line, fg=paint, bold=is_title or None, reset=paint is not None)


def print_json(value: Mapping[str, Any] | list[dict[str, Any]], code: int = 0) -> None:
    """Print an object, or one for each path; each says how it ended."""
    # What breaks the readers of any object raises the version of all.
    ended = {"schema_version": SCHEMA_VERSION, "ok": code == 0, "exit_code": code}
    said = [ended | one for one in value] if isinstance(value, list) else {**ended, **value}
    click.echo(json.dumps(said, indent=2, default=os.fspath))


def print_path(path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> None:
    """Print a path: to a script as the bytes that it is, on a terminal as one line; or JSON."""
    if about is not None:
        print_json(about)
        return
    click.echo(shown(path) if sys.stdout.isatty() else os.fsencode(path))


def print_table(titles: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table. A cell that is very long makes its own line longer, and no other."""
    from rich.cells import cell_len  # noqa: PLC0415 - few commands print a table

    table = [[*titles]]
    table += ([printable(str(cell)).replace("\n", r"\n") for cell in row] for row in rows)
    columns = zip(*table, strict=True)
    widths = [max(min(_WIDEST, cell_len(cell)) for cell in column) for column in columns]
    for *cells, last in table:
        # Not str.ljust(), which counts characters: some take two places.
        padded = zip(cells, widths, strict=False)
        click.echo("  ".join([*(text + " " * (n - cell_len(text)) for text, n in padded), last]))


def first_of(lines: list[str], most: int = SHOWN) -> list[str]:
    """Return the first of many lines, and one that says how many more there are."""
    return lines[:most] + [f"  and {len(lines) - most} more"] * (len(lines) > most)
