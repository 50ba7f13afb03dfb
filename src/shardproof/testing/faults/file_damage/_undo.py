"""Put files back as they were before a context: bytes, modes, times and names."""

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

_Before = tuple[os.stat_result, IO[bytes]]
"""A file as it was; its copy is in a nameless temporary file, which no listing shows."""


@contextlib.contextmanager
def put_back(
    paths: Sequence[Path], change: Callable[[], None], *, may_be_gone: Path | None = None
) -> Iterator[None]:
    """Change files of one directory, and put them back at the end if nobody else changed them."""
    folder = paths[0].parent
    with contextlib.ExitStack() as copies:
        before = {path: _before(path, copies) for path in paths}
        times = os.lstat(folder)
        try:
            change()
            left = {path: _look(path) for path in paths}
            yield
        finally:
            now = {path: _look(path) for path in paths}
            if may_be_gone is not None and now[may_be_gone] is None:
                left[may_be_gone] = None
            changed = ", ".join(f"'{path}'" for path in paths if now[path] != left[path])
            if not changed:
                for path, was in before.items():
                    _restore(path, was)
                with contextlib.suppress(PermissionError):  # another user's, such as /tmp
                    set_times(folder, times)
            else:
                text = (
                    f"Nothing was put back, because this changed after it was damaged: {changed}. "
                    "Where the code under test repairs, use damage() instead of damaged()."
                )
                if (error := sys.exception()) is None:
                    raise RuntimeError(text)
                error.add_note(text)


def _before(path: Path, copies: contextlib.ExitStack) -> _Before | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    copy = tempfile.SpooledTemporaryFile(max_size=2**20)  # noqa: SIM115 - closed with the rest
    copies.enter_context(copy)
    with open(path, "rb") as file:
        shutil.copyfileobj(file, copy)
    return status, copy


def _restore(path: Path, was: _Before | None) -> None:
    if was is None:
        path.unlink(missing_ok=True)
        return
    status, copy = was
    with contextlib.suppress(FileNotFoundError):
        os.chmod(path, 0o600)  # the code under test may have locked it
    with open(path, "wb") as file:
        copy.seek(0)
        shutil.copyfileobj(copy, file)
    os.chmod(path, stat.S_IMODE(status.st_mode))
    set_times(path, status)


def _look(path: Path) -> tuple[int, ...] | None:
    """Return by what a change shows; None if nothing is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def set_times(path: Path, status: os.stat_result) -> None:
    """Set the times of a file to those of another, or to its own of before."""
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
