"""What the command writes to, and how: streams that may be gone, lines, tables.

With colours on a terminal, elsewhere as plain lines. What is no terminal is a file or a program. It
takes lines as they are, however long; and they are written one by one, because there may be
millions.
"""

import contextlib
import errno
import io
import itertools
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, TypeAlias

from shardproof._base.messages import told

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Cell", "Painted", "console", "print_lines", "print_table", "standard_streams"]

_BROKEN_PIPE = 141  # 128 + SIGPIPE: what a shell says of a program that this signal ended
_COULD_NOT_SAY = 3

_WIDEST = 255  # places that a column is filled up to; the longest name that most file systems have

_AT_ONCE = 1000  # lines that are painted together: each call of rich costs 0.1 ms

# Any of these may make rich print as on a terminal where there is none.
_SAY_TERMINAL = ("FORCE_COLOR", "TTY_COMPATIBLE")


class Painted(NamedTuple):
    """A text with its colour, for a table."""

    text: str
    style: str = ""


Cell: TypeAlias = str | Painted


class OutputError(Exception):
    """Standard output takes no more. No `OSError`: that would be taken for one of the shards'."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"shardproof: could not write to standard output: {told(error)}")
        self.exit_code = _BROKEN_PIPE if error.errno == errno.EPIPE else _COULD_NOT_SAY


class _Patient(io.FileIO):
    """A descriptor to write to; the other end of a pipe may have made it one that never waits.

    The first write to standard output that fails ends the command. That standard error fails can be
    said nowhere; the exit code still counts. Nothing is written after a write that was interrupted,
    or failed: its reader may never come. Only standard error goes on if it has room, as there the
    cursor of a terminal may have to be shown again.
    """

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
    """Give the command streams that end it by an exit code of their own, and never a traceback.

    141 without a word where the reader is gone; 3 and a line on standard error where standard
    output is closed, or full.
    """
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


def console(*, wraps: bool) -> "Console | None":
    """Return what prints on standard output if it is a terminal, else None.

    Args:
        wraps: Whether long lines are broken between words.
    """
    if not (sys.stdout.isatty() or any(map(os.environ.get, _SAY_TERMINAL))):
        return None
    from rich.console import Console  # noqa: PLC0415 - takes long to import

    out = Console(highlight=False, soft_wrap=not (wraps and sys.stdout.isatty()))
    return out if out.is_terminal else None


def print_lines(
    out: "Console | None", lines: Iterable[str], style: str = "", *, marked: str = ""
) -> None:
    """Print lines, of many some at a time.

    Args:
        out: The terminal, if it is one.
        lines: Texts of which nothing moves the cursor; one may hold several lines.
        style: How they look on a terminal.
        marked: A regular expression; what it finds is bold and red.
    """
    if out is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
        return
    from rich.text import Text  # noqa: PLC0415 - as above

    waiting = iter(lines)
    while some := list(itertools.islice(waiting, _AT_ONCE)):
        text = Text("\n".join(some), style)
        if marked:
            text.highlight_regex(marked, "bold red")
        out.print(text)


def print_table(
    out: "Console | None", titles: Sequence[str], rows: Callable[[], Iterable[Sequence[Cell]]]
) -> None:
    """Print a table.

    Args:
        out: The terminal, if it is one.
        titles: Of its columns.
        rows: Returns the rows, anew each time.
    """
    if out is None or not sys.stdout.isatty():
        print_lines(out, _plain(titles, rows))
        return
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table(*titles, box=None, pad_edge=False)
    for row in rows():
        cells = (cell if isinstance(cell, Painted) else Painted(cell) for cell in row)
        table.add_row(*(Text(cell.text, cell.style, overflow="fold") for cell in cells))
    out.print(table)


def _plain(titles: Sequence[str], rows: Callable[[], Iterable[Sequence[Cell]]]) -> Iterator[str]:
    """Yield the lines of a table. A cell that is very long makes its own line longer, no other."""
    from rich.cells import cell_len  # noqa: PLC0415 - as above

    widths = [*map(cell_len, titles)]
    for row in rows():
        lengths = (min(_WIDEST, max(map(cell_len, _lines(cell)))) for cell in row)
        widths = [*map(max, widths, lengths)]
    for row in itertools.chain([titles], rows()):
        for cells in itertools.zip_longest(*map(_lines, row), fillvalue=""):
            # Not str.ljust(), which counts characters: some take two places.
            padded = zip(cells[:-1], widths, strict=False)
            filled = [text + " " * (width - cell_len(text)) for text, width in padded]
            yield "  ".join([*filled, cells[-1]])


def _lines(cell: Cell) -> list[str]:
    return (cell.text if isinstance(cell, Painted) else cell).split("\n")
