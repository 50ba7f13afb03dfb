"""What the command writes to: streams that may be gone."""

import contextlib
import errno
import io
import os
import select
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from shardproof._base.messages import told

__all__ = ["standard_streams"]

_BROKEN_PIPE = 141  # 128 + SIGPIPE: what a shell says of a program that this signal ended
_COULD_NOT_SAY = 3


class OutputError(Exception):
    """Standard output takes no more. No `OSError`: that would be taken for one of the shards'."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"shardproof: could not write to standard output: {told(error)}")
        self.exit_code = _BROKEN_PIPE if error.errno == errno.EPIPE else _COULD_NOT_SAY


class _Patient(io.FileIO):
    """A descriptor to write to; the other end of a pipe may have made it one that never waits.

    Nothing is written after a write that failed, or was interrupted: its reader may never come.
    """

    _is_lost = False

    def write(self, data: Any) -> int:
        """Write some bytes, and wait until that can be done."""
        if self._is_lost:
            return len(data)
        self._is_lost = True
        while (n_bytes := super().write(data)) is None:
            select.select([], [self], [])
        self._is_lost = False
        return n_bytes


class _Output(_Patient):
    """Standard output. The first write that fails ends the command."""

    def write(self, data: Any) -> int:
        """Write some bytes."""
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from error


class _Errors(_Patient):
    """Standard error. There is nowhere to say that it fails; the exit code still counts."""

    def write(self, data: Any) -> int:
        """Write some bytes, or lose them."""
        try:
            return super().write(data)
        except OSError:
            self._is_lost = False  # the next ones may find room
            return len(data)


@contextlib.contextmanager
def standard_streams() -> Iterator[None]:
    """Give the command streams that end it by an exit code of their own, and never a traceback.

    141 without a word where nobody reads any more; 3 and a line on standard error where standard
    output is closed, or full.
    """
    sys.stdout = _stream(_Output, 1, sys.stdout)
    sys.stderr = _stream(_Errors, 2, sys.stderr)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError as error:
        if error.exit_code == _COULD_NOT_SAY:
            sys.stderr.write(f"{told(error)}\n")
        sys.exit(error.exit_code)


def _stream(kind: type[io.FileIO], fd: int, old: TextIO | None) -> TextIO:
    """Return a stream of text for a descriptor; ``old`` is Python's own, None if it is closed."""
    if old is None:
        _occupy(fd)
    raw = kind(fd, "wb", closefd=False)
    # A path is bytes and need not be text; it must not end the report in a traceback.
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding if old is not None else "utf-8",
        errors="backslashreplace",
        line_buffering=fd == 2 or raw.isatty(),
    )


def _occupy(fd: int) -> None:
    """Put something there that can't be written to, or a file of a shards directory may get it."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing != fd:
        os.dup2(nothing, fd)
        os.close(nothing)
