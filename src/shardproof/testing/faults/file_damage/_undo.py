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

_BLOCK = 2**20  # bytes that are held in memory at once


def blocks(
    file: IO[bytes], start: int, stop: int, *, backwards: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Yield the bytes from one offset up to another, block by block, each with its offset."""
    starts = range(start, stop, _BLOCK)
    for offset in reversed(starts) if backwards else starts:
        file.seek(offset)
        yield offset, file.read(min(_BLOCK, stop - offset))


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
        self._may_be_gone: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        with self._kept:
            changed = []
            for path, left in self._left.items():
                now = _look(path)
                if now != left and not (now is None and path == self._may_be_gone):
                    changed.append(f"'{path}'")
            if not changed:
                self._steps.close()
                return
            text = (
                "Nothing was put back, because this changed after it was damaged: "
                f"{', '.join(changed)}. "
                "Where the code under test repairs, use damage() instead of damaged()."
            )
            if error is None:
                raise RuntimeError(text)
            error.add_note(text)

    def forget(self) -> None:
        """Leave everything as it is now."""
        self._steps.pop_all()

    def only_if_unchanged(self, paths: Iterable[Path], may_be_gone: Path | None) -> None:
        """Take nothing back if a path has changed by then; one of them may be gone."""
        self._left = {path: _look(path) for path in paths}
        self._may_be_gone = may_be_gone

    def watch(self, path: Path) -> os.stat_result:
        """Put back a file's mode and times, or a directory's times."""
        before = self._before[path] = os.lstat(path)

        def restore() -> None:
            is_directory = stat.S_ISDIR(before.st_mode)
            if not is_directory:
                os.chmod(path, stat.S_IMODE(before.st_mode))
            # Of another user's directory, such as /tmp, the times can not be set.
            with contextlib.suppress(*([PermissionError] if is_directory else [])):
                _set_times(path, before)

        self._steps.callback(restore)
        return before

    def set_times(self, written: Iterable[Path], *, like: Path | None) -> None:
        """Set written files to now; given ``like``, keep all times, and give new files its own."""
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
                shutil.copyfileobj(saved, file, _BLOCK)
                file.truncate(before.st_size)

        self._steps.callback(put_back)

    def _save(self, path: Path, start: int, stop: int) -> IO[bytes]:
        saved = tempfile.SpooledTemporaryFile(max_size=_BLOCK)  # noqa: SIM115 - closed with the rest
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
                shutil.copyfileobj(saved, file, _BLOCK)
            now = os.stat(path)
            # Only root may give a file away; for all others the owner is right already.
            if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
                os.chown(path, before.st_uid, before.st_gid)

        os.unlink(path)
        self._steps.callback(make_anew)

    def copy(self, source: Path, target: Path) -> None:
        """Copy a watched file to a new name."""
        with open(source, "rb") as old, open(target, "xb") as new:
            self._steps.callback(target.unlink, missing_ok=True)
            shutil.copyfileobj(old, new, _BLOCK)
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


def _set_times(path: Path, status: os.stat_result) -> None:
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
