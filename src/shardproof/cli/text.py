"""Text and tables on standard output: with colours on a terminal, elsewhere as plain lines.

What is no terminal is a file or a program. It takes lines as they are, however long; and they are
written one by one, because there may be millions.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["console", "print_lines", "print_table"]

_WIDEST = 255  # places that a column is filled up to; the longest name that most file systems have

_AT_ONCE = 1000  # lines that are painted together: each call of rich costs 0.1 ms

_Cell = str | Text


def console(*, wraps: bool) -> Console:
    """Return what prints on standard output.

    Args:
        wraps: Whether long lines are broken between words where it is a terminal.
    """
    return Console(highlight=False, soft_wrap=not (wraps and sys.stdout.isatty()))


def print_lines(out: Console, lines: Iterable[str], painted: Callable[[str], Text] = Text) -> None:
    """Print lines, of many some at a time.

    Args:
        out: Where.
        lines: Texts of which nothing moves the cursor; one may hold several lines.
        painted: Returns some of them with their colours, for a terminal.
    """
    if out.is_terminal:
        waiting = iter(lines)
        while some := list(itertools.islice(waiting, _AT_ONCE)):
            out.print(painted("\n".join(some)))
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()


def print_table(
    out: Console, titles: Sequence[str], rows: Callable[[], Iterable[Sequence[_Cell]]]
) -> None:
    """Print a table.

    Args:
        out: Where.
        titles: Of its columns.
        rows: Returns the rows, anew each time; a cell that is no mere text says how it is folded.
    """
    if not sys.stdout.isatty():
        print_lines(out, _plain(titles, rows))
        return
    table = Table(*titles, box=None, pad_edge=False)
    for row in rows():
        table.add_row(*row)
    out.print(table)


def _plain(titles: Sequence[str], rows: Callable[[], Iterable[Sequence[_Cell]]]) -> Iterator[str]:
    """Yield the lines of a table. A cell that is very long makes its own line longer, no other."""
    widths = [*map(cell_len, titles)]
    for row in rows():
        lengths = (min(_WIDEST, max(map(cell_len, _lines(cell)))) for cell in row)
        widths = [*map(max, widths, lengths)]
    for row in itertools.chain([titles], rows()):
        for cells in itertools.zip_longest(*map(_lines, row), fillvalue=""):
            filled = map(_filled, cells[:-1], widths)
            yield "  ".join([*filled, cells[-1]])


def _lines(cell: _Cell) -> list[str]:
    return str(cell).split("\n")


def _filled(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))
