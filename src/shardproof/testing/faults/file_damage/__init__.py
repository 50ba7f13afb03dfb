"""Damage one file, as a seed decides, and take it back."""

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shardproof.testing.faults._arguments import expect, expect_count
from shardproof.testing.faults.file_damage._kinds import CHANGES, DamageKind, Target
from shardproof.testing.faults.file_damage._undo import Undo

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
    play a part - swapped, stray, renamed - so do the names in the directory.) Only what changes is
    read, block by block. After an error the file is as it was.

    Args:
        path: A regular file with one name: neither a symbolic link nor one of several hard links.
        kind: What to do; also as text, such as ``"truncated-at-end"``.
        seed: Decides where; any integer.
        boundary: Bytes in a block, for the two cuts that ask.
        keep_times: Whether the modification time stays, as it does when a disk rots.

    Returns:
        What was done.

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
    with Undo() as undo:
        done = _inflict(undo, path, kind, seed, boundary=boundary, keep_times=keep_times)
        undo.forget()
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
    """Damage a file for as long as the context lasts.

    At its end bytes, mode, owner, times and names are as before, also after an exception. A missing
    file comes back as a new inode, without extended attributes. Until then the part that changes is
    kept in a nameless temporary file, in memory up to 1 MiB.

    What the body itself did to the damaged file is not overwritten: if it is not as `damage` left
    it, nothing is put back, and an error says so. For code that repairs, use `damage`. (A stray
    file that the body removed is no error: then all is as before.)

    It takes the arguments of `damage`, and raises the same errors.

    Yields:
        What was done.

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
    with Undo() as undo:
        done = _inflict(undo, path, kind, seed, boundary=boundary, keep_times=keep_times)
        stray = done.other if done.kind is DamageKind.STRAY else None
        undo.only_if_unchanged(filter(None, (done.path, done.other)), may_be_gone=stray)
        yield done


def _inflict(
    undo: Undo,
    path: str | os.PathLike[str],
    kind: str,
    seed: int,
    *,
    boundary: int,
    keep_times: bool,
) -> DamageRecord:
    expect("path", path, str, os.PathLike)
    expect("kind", kind, str)
    expect("seed", seed, int)
    expect_count("boundary", boundary, 1)
    expect("keep_times", keep_times, bool)
    if kind not in tuple(DamageKind):
        raise ValueError(f"kind: expected one of {', '.join(DamageKind)}; found {kind!r}")
    kind = DamageKind(kind)
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
    size = undo.watch(path).st_size
    key = f"{kind}:{seed}:".encode() + os.fsencode(path.name)
    done = CHANGES[kind](Target(path, size, kind, boundary, key, undo))
    undo.set_times(done.written, like=path if keep_times else None)
    return DamageRecord(kind, seed, path, done.other, done.what)
