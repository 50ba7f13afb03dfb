"""Change files so that it can be taken back: bytes, modes, times and names."""

import contextlib
import os
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Self

__all__ = ["BLOCK", "Undo", "blocks"]

BLOCK = 2**20
"""Bytes that are held in memory at once."""


def blocks(
    file: IO[bytes], start: int, stop: int, *, backwards: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield a part of a file, piece by piece, each with its offset.

    Args:
        file: An open file that can seek.
        start: Offset of the first byte.
        stop: Offset behind the last one.
        backwards: Whether the last piece comes first.
    """
    starts = range(start, stop, BLOCK)
    for offset in reversed(starts) if backwards else starts:
        file.seek(offset)
        yield offset, file.read(min(BLOCK, stop - offset))


class Undo:
    """A context that takes back, on leaving it, what was changed through it, the last first.

    What it needs for that it holds in nameless temporary files: no listing shows them, and they
    are gone with the process.
    """

    def __init__(self) -> None:
        self._steps = contextlib.ExitStack()
        self._kept = contextlib.ExitStack()
        self._before: dict[Path, os.stat_result] = {}
        self._left: dict[Path, tuple[int, ...] | None] = {}
        self._may_be_gone: frozenset[Path] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with self._kept:
            changed = []
            for path, left in self._left.items():
                now = _look(path)
                if now != left and not (now is None and path in self._may_be_gone):
                    changed.append(path)
            if not changed:
                self._steps.close()
                return
            paths = ", ".join(f"'{path}'" for path in changed)
            text = (
                f"Nothing was put back, because this changed after it was damaged: {paths}. "
                "Where the code under test repairs, use damage() instead of damaged()."
            )
            if error is None:
                raise RuntimeError(text)
            error.add_note(text)

    def forget(self) -> None:
        """Let everything stay as it is now."""
        self._steps.pop_all()

    def only_if_unchanged(self, paths: Iterable[Path], may_be_gone: Iterable[Path]) -> None:
        """Take nothing back if one of the paths looks other than now by then.

        Args:
            paths: Where to look.
            may_be_gone: Those of which it is no matter if they are gone.
        """
        self._left = {path: _look(path) for path in paths}
        self._may_be_gone = frozenset(may_be_gone)

    def watch(self, path: Path) -> os.stat_result:
        """Put back a file's mode and times, or a directory's times."""
        before = os.lstat(path)
        self._before[path] = before
        self._steps.callback(_restore, path, before)
        return before

    def set_times(self, written: Iterable[Path], *, like: Path | None) -> None:
        """Give written files the time of now, or keep all times.

        Args:
            written: Files whose bytes are other than before.
            like: If given, whatever is watched has its times from before, and a new file those of
                this one.
        """
        if like is None:
            for path in written:
                # The clock of the file system ticks every few milliseconds: a change that the body
                # makes at once would not show. These nanoseconds lie between two ticks.
                os.utime(path, ns=(os.lstat(path).st_atime_ns, time.time_ns()))
            return
        for path in {*self._before, *written}:
            with contextlib.suppress(FileNotFoundError):
                _set_times(path, self._before.get(path, self._before[like]))

    def keep(self, path: Path, start: int, stop: int) -> None:
        """Keep a part of a watched file, and put it back, to where the file then ends as it did."""
        saved, before = self._save(path, start, stop), self._before[path]

        def put_back() -> None:
            os.chmod(path, stat.S_IMODE(before.st_mode))  # the code under test may have locked it
            with open(path, "r+b") as file:
                file.seek(start)
                saved.seek(0)
                shutil.copyfileobj(saved, file, BLOCK)
                file.truncate(before.st_size)

        self._steps.callback(put_back)

    def _save(self, path: Path, start: int, stop: int) -> IO[bytes]:
        saved = tempfile.SpooledTemporaryFile(max_size=BLOCK)  # noqa: SIM115 - closed with the rest
        self._kept.callback(saved.close)
        with open(path, "rb") as file:
            for _, block in blocks(file, start, stop):
                saved.write(block)
        return saved

    def remove(self, path: Path) -> None:
        """Remove a watched file."""
        before = self._before[path]
        saved = self._save(path, 0, before.st_size)

        def make_anew() -> None:
            with open(path, "xb") as file:
                saved.seek(0)
                shutil.copyfileobj(saved, file, BLOCK)
            now = os.stat(path)
            if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
                os.chown(path, before.st_uid, before.st_gid)

        os.unlink(path)
        self._steps.callback(make_anew)

    def copy(self, source: Path, target: Path) -> None:
        """Copy a watched file to a new name."""
        with open(source, "rb") as old, open(target, "xb") as new:
            self._steps.callback(target.unlink, missing_ok=True)
            shutil.copyfileobj(old, new, BLOCK)
        os.chmod(target, stat.S_IMODE(self._before[source].st_mode))

    def move(self, source: Path, target: Path) -> None:
        """Rename a file to a name that is free."""
        os.rename(source, target)
        self._steps.callback(os.rename, target, source)

    def exchange(self, path: Path, other: Path) -> None:
        """Exchange the contents of two watched files, however large; modes stay with the names."""
        aside = path.with_name(f".{uuid.uuid4().hex}")
        self.move(path, aside)
        self.move(other, path)
        self.move(aside, other)
        for each in (path, other):
            os.chmod(each, stat.S_IMODE(self._before[each].st_mode))


def _look(path: Path) -> tuple[int, ...] | None:
    """Return by what a change shows; None if nothing is there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _restore(path: Path, before: os.stat_result) -> None:
    if stat.S_ISDIR(before.st_mode):
        # Of a directory that belongs to somebody else, such as /tmp, the times can not be set.
        with contextlib.suppress(PermissionError):
            _set_times(path, before)
    else:
        os.chmod(path, stat.S_IMODE(before.st_mode))
        _set_times(path, before)


def _set_times(path: Path, status: os.stat_result) -> None:
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
