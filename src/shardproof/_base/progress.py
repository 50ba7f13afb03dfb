"""A progress bar on a terminal, with rate and time left, for what takes longer than a second."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from shardproof._base.messages import shown

_QUIET_SECONDS = 1.0
_WIDEST = 60  # characters of a label


@contextlib.contextmanager
def reporting(
    progress: bool | Callable[[int, int], Any], label: str, *, in_bytes: bool = False
) -> Iterator[Callable[[int, int], Any] | None]:
    """Yield what takes how much is done: a bar on a terminal, the caller's function, or nothing."""
    if progress is not True:
        yield progress or None
        return
    begin = time.monotonic()
    advance: Callable[[int, int], object] | None = None
    with contextlib.ExitStack() as stack:

        def on_progress(done: int, total: int) -> None:
            nonlocal advance
            try:
                if advance is None and time.monotonic() - begin >= _QUIET_SECONDS:
                    advance = _draw(label, stack, in_bytes)
                if advance is not None:
                    advance(done, total)
            except OSError:  # the terminal is gone
                advance = lambda *_: None  # noqa: E731

        yield on_progress if sys.stderr is not None and sys.stderr.isatty() else None


def _draw(label: str, stack: contextlib.ExitStack, in_bytes: bool) -> Callable[[int, int], None]:
    from rich.console import Console  # noqa: PLC0415 - costs 60 ms, and few looks take a second
    from rich.filesize import decimal  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    # A label may be a name from outside: rich's own column would take it for markup.
    text = TextColumn("{task.description}", style="progress.description", markup=False)
    amount = DownloadColumn() if in_bytes else MofNCompleteColumn()
    rate = TextColumn("{task.fields[rate]}", markup=False)
    columns = (text, *Progress.get_default_columns()[1:], amount, rate)
    console = Console(stderr=True)
    # An interrupt that cuts the end short would leave the terminal without a cursor.
    console.show_cursor = lambda *_: False  # type: ignore[method-assign]
    # No refreshing thread: rich does not join it.
    progress = Progress(*columns, console=console, transient=True, auto_refresh=False)

    def leave() -> None:
        # rich pops what a start that was interrupted never pushed
        with contextlib.suppress(OSError, IndexError):
            progress.stop()

    stack.callback(leave)
    progress.start()
    task = progress.add_task(shown(label, _WIDEST), total=None, rate="")

    def advance(done: int, total: int) -> None:
        speed = progress.tasks[0].speed or 0.0
        rate = decimal(int(speed)) if in_bytes else f"{speed:.3g}"
        progress.update(
            task, completed=done, total=total, rate=f"{rate}/s" * (speed > 0), refresh=True
        )

    return advance
