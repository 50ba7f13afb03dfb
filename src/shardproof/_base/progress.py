"""A progress bar on a terminal, for work that takes longer than a second."""

import atexit
import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from shardproof._base.messages import shown

_QUIET_SECONDS = 1.0
_WIDEST = 60  # characters of a label


@contextlib.contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a callable that draws how much is done, on a terminal and after a second."""
    begin = time.monotonic()
    with contextlib.ExitStack() as stack:
        advance: Callable[[int, int], None] | None = None

        def on_progress(done: int, total: int) -> None:
            nonlocal advance
            try:
                if advance is None and time.monotonic() - begin >= _QUIET_SECONDS:
                    advance = _draw(label, stack)
                if advance is not None:
                    advance(done, total)
            except OSError:
                advance = _ignore

        yield on_progress if sys.stderr is not None and sys.stderr.isatty() else _ignore


def _ignore(done: int, total: int) -> None:
    """Draw nothing."""


def _draw(label: str, stack: contextlib.ExitStack) -> Callable[[int, int], None]:
    from rich.console import Console  # noqa: PLC0415 - costs 60 ms, and few looks take a second
    from rich.progress import MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    # A label may be a name from outside: rich's own column would take it for markup.
    text = TextColumn("{task.description}", style="progress.description", markup=False)
    columns = (text, *Progress.get_default_columns()[1:], MofNCompleteColumn())
    # No refreshing thread: rich does not join it.
    console = Console(stderr=True)
    progress = Progress(*columns, console=console, transient=True, auto_refresh=False)

    def show_cursor() -> None:
        with contextlib.suppress(OSError):
            Console(stderr=True).show_cursor()  # the other's buffer may be what was cut short

    def leave() -> None:
        try:
            progress.stop()
        except (OSError, IndexError):  # rich pops what a start that was interrupted never pushed
            show_cursor()
        atexit.unregister(show_cursor)

    # An interrupt that cuts `leave` short would leave the terminal without a cursor.
    atexit.register(show_cursor)
    stack.callback(leave)
    progress.start()
    task = progress.add_task(shown(label, _WIDEST), total=None)

    def advance(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total, refresh=True)

    return advance
