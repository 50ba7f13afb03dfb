"""Damage one file, as a seed decides, and take it back."""

import contextlib
import dataclasses
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from shardproof.testing.faults.file_damage._kinds import PLANS, DamageKind, PlannedDamage, Target
from shardproof.testing.samples._keywords import expect, integer, one_of

__all__ = ["Damage", "DamageKind", "DamageRecord", "damage", "damaged"]


class Damage(NamedTuple):
    """What a strategy draws and `damage` takes: ``damage(path, *drawn)``."""

    kind: DamageKind
    seed: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class DamageRecord:
    """What was done to a file; its text belongs into an assertion's message.

    Attributes:
        kind: The kind of damage.
        seed: The seed that decided the rest.
        path: The damaged file, absolute.
        other: The second path that it concerns: whose contents it has now, the stray file, the
            file's new name; None for the other kinds.
        what: What was done, in words.

    Example:
        >>> print(DamageRecord(DamageKind.FLIPPED, 0, Path("/a.bin"), None, "bit 3 of byte 1"))
        flipped: bit 3 of byte 1
    """

    kind: DamageKind
    seed: int
    path: Path
    other: Path | None
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


def damage(
    path: str | os.PathLike[str],
    kind: str,
    seed: int = 0,
    *,
    boundary: int = 512,
    keep_times: bool = False,
) -> DamageRecord:
    """Damage a file for good, so that it differs from before, and say how.

    The same bytes, name, kind and seed give the same damage on every machine. (Where other names
    play a part - swapped, stray, renamed - so do the names in the directory.) What would change
    nothing is refused before anything is written.

    Args:
        path: A regular file with one name: neither a symbolic link nor one of several hard links.
        kind: What to do; also as text, such as ``"truncated-at-end"``.
        seed: Decides where; any integer.
        boundary: Bytes in a block, for the two cuts that ask.
        keep_times: Whether the modification time stays, as it does when a disk rots.

    Raises:
        TypeError: An argument of another type.
        ValueError: An unknown kind, a boundary below 1, another sort of file; or nothing would
            change, as for a bit of an empty file.
        OSError: The file could not be read or changed, as by a user who does not own it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     path = Path(base, "acts000000.bin")
        ...     _ = path.write_bytes(bytes(4096))
        ...     done = damage(path, "truncated-inside", seed=1)
        ...     done.kind, path.stat().st_size % 512 != 0
        (<DamageKind.TRUNCATED_INSIDE: 'truncated-inside'>, True)
    """
    done, plan = _planned(path, kind, seed, boundary, keep_times)
    _inflict(done, plan, keep_times)
    return done


@contextlib.contextmanager
def damaged(
    path: str | os.PathLike[str],
    kind: str,
    seed: int = 0,
    *,
    boundary: int = 512,
    keep_times: bool = False,
) -> Iterator[DamageRecord]:
    """Damage a file for as long as the context lasts, and yield what was done.

    At its end bytes, mode, modification times and names are as before, also after an exception.
    What the body itself did to the damaged file is not overwritten (docs/damage.md): for code that
    repairs, use `damage`. It takes the arguments of `damage`, and raises the same errors.

    Raises:
        OSError: It could not be put back.
        RuntimeError: The body changed the damaged file. If the body raised, its exception gets a
            note instead.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as base:
        ...     path = Path(base, "acts000000.bin")
        ...     _ = path.write_bytes(b"all of it")
        ...     with damaged(path, DamageKind.MISSING):
        ...         path.exists()
        ...     path.read_bytes()
        False
        b'all of it'
    """
    done, plan = _planned(path, kind, seed, boundary, keep_times)
    paths = [each for each in (done.path, done.other) if each is not None]
    with contextlib.ExitStack() as copies:
        before = {each: _before(each, copies) for each in paths}
        times = os.lstat(done.path.parent)
        _inflict(done, plan, keep_times)
        left = [*map(_look, paths)]
        try:
            yield done
        finally:
            now = [*map(_look, paths)]
            if done.kind is DamageKind.STRAY and now[1] is None:
                left[1] = None
            if left == now:
                for each, was in before.items():
                    _restore(each, was)
                with contextlib.suppress(PermissionError):  # another user's, such as /tmp
                    _set_times(done.path.parent, times)
            else:
                pairs = zip(paths, left, now, strict=True)
                changed = ", ".join(f"'{each}'" for each, one, other in pairs if one != other)
                text = (
                    f"Nothing was put back, because this changed after it was damaged: {changed}. "
                    "Where the code under test repairs, use damage() instead of damaged()."
                )
                if (error := sys.exception()) is None:
                    raise RuntimeError(text)
                error.add_note(text)


def _planned(
    path: str | os.PathLike[str], kind: str, seed: int, boundary: int, keep_times: bool
) -> tuple[DamageRecord, PlannedDamage]:
    expect("keep_times", keep_times, bool)
    expect("path", path, str, os.PathLike)
    expect("kind", kind, str)
    integer("seed", seed)
    integer("boundary", boundary, at_least=1)
    kind = one_of("kind", kind, DamageKind)
    path = Path(os.path.abspath(path))
    found = os.lstat(path)  # through a link, symbolic or hard, the damage would reach another file
    if not stat.S_ISREG(found.st_mode):
        mode = stat.filemode(found.st_mode)
        raise ValueError(f"path: expected a regular file, found {mode}: '{path}'")
    if found.st_nlink > 1:
        raise ValueError(
            f"path: expected a file with one name, found {found.st_nlink} hard links: '{path}'; "
            "damage a copy"
        )
    key = f"{kind}:{seed}:".encode() + os.fsencode(path.name)
    plan = PLANS[kind](Target(path, found.st_size, kind, boundary, key))
    return DamageRecord(kind, seed, path, plan.other, plan.what), plan


def _inflict(done: DamageRecord, plan: PlannedDamage, keep_times: bool) -> None:
    before = _statuses(done)
    plan.act()
    if keep_times:
        for each in _statuses(done):
            _set_times(each, before.get(each, before[done.path]))
        return
    for each in plan.written:
        # The clock of the file system ticks every few milliseconds: a change that the body makes at
        # once would not show. These nanoseconds lie between two ticks.
        os.utime(each, ns=(os.lstat(each).st_atime_ns, time.time_ns()))


def _statuses(done: DamageRecord) -> dict[Path, os.stat_result]:
    paths = [path for path in (done.path, done.other, done.path.parent) if path is not None]
    return {path: found for path in paths if (found := _status(path))}


def _status(path: Path) -> os.stat_result | None:
    with contextlib.suppress(FileNotFoundError):
        return os.lstat(path)
    return None


_Before = tuple[os.stat_result, IO[bytes]]  # a file as it was, and a copy without a name


def _before(path: Path, copies: contextlib.ExitStack) -> _Before | None:
    status = _status(path)
    if status is None:
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
    _set_times(path, status)


def _look(path: Path) -> tuple[int, ...] | None:
    """Return by what a change shows; None if nothing is there."""
    found = _status(path)
    return found and (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _set_times(path: Path, status: os.stat_result) -> None:
    """Set the times of a file to those of another, or to its own of before."""
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
