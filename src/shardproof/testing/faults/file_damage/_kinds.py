"""What can be done to a file, and how each of it is done so that it can be taken back."""

import dataclasses
import enum
import hashlib
import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shardproof.testing.faults.file_damage._undo import Undo, blocks

_ENDINGS = (".bak", ".old", ".part", ".tmp", "~")  # which people and programs leave behind


class DamageKind(enum.StrEnum):
    """What is done to a file."""

    FLIPPED = "flipped"
    """One bit is another."""
    TRUNCATED_AT_BOUNDARY = "truncated-at-boundary"
    """Cut between two blocks; to 0 bytes only where there is no more than one block."""
    TRUNCATED_INSIDE = "truncated-inside"
    """Cut inside a block; at least one byte is left."""
    TRUNCATED_AT_END = "truncated-at-end"
    """The last 1 to 8 bytes are gone, and with them an end mark or a checksum."""
    EXTENDED = "extended"
    """1 to 64 bytes follow the end."""
    SWAPPED = "swapped"
    """Contents are exchanged with another file of the directory that has the same suffix."""
    MISSING = "missing"
    """It is gone."""
    STRAY = "stray"
    """A copy beside it, under a name that no manifest promises."""
    RENAMED = "renamed"
    """It is beside its place, under a name that no manifest promises."""
    ZERO_TAIL = "zero-tail"
    """From some byte on it reads as zeros; the size is right."""
    SPARSE = "sparse"
    """It was never written: one hole, which reads as zeros; the size is right."""


class Change(NamedTuple):
    """What one kind did."""

    what: str
    written: tuple[Path, ...] = ()  # files whose bytes are other than before
    other: Path | None = None


@dataclasses.dataclass(slots=True)
class Target:
    """The file to damage, and what decides and takes back."""

    path: Path
    size: int
    kind: DamageKind
    boundary: int
    key: bytes  # what decides
    undo: Undo
    n_drawn: int = 0

    def __str__(self) -> str:
        return repr(str(self.path))

    def draw(self, below: int) -> int:
        """Return a number; the next one, each time."""
        # Not from `random`, which promises the same numbers in every version of Python for one of
        # its methods only.
        digest = hashlib.sha256(b"%d:%b" % (self.n_drawn, self.key)).digest()
        self.n_drawn += 1
        return int.from_bytes(digest, "big") % below

    def refuse_below(self, least: int) -> None:
        if self.size < least:
            raise ValueError(
                f"{self.kind}: expected a file of {least} or more bytes, "
                f"found one of {self.size}: {self}"
            )


def _flip(target: Target) -> Change:
    target.refuse_below(1)
    byte, bit = divmod(target.draw(8 * target.size), 8)
    target.undo.keep(target.path, byte, byte + 1)
    with open(target.path, "r+b") as file:
        file.seek(byte)
        (before,) = file.read(1)
        file.seek(byte)
        file.write(bytes([before ^ 1 << bit]))
    return Change(f"bit {bit} of byte {byte} of {target}", (target.path,))


def _cut(target: Target) -> Change:
    size, boundary = target.size, target.boundary
    target.refuse_below(1 if target.kind is DamageKind.TRUNCATED_AT_BOUNDARY else 2)
    below = size - 1
    if target.kind is DamageKind.TRUNCATED_AT_BOUNDARY:
        n_choices = below // boundary
        left = boundary * (1 + target.draw(n_choices)) if n_choices else 0
    elif target.kind is DamageKind.TRUNCATED_AT_END:
        left = below - target.draw(min(8, below))
    elif boundary == 1:
        raise ValueError(f"{target.kind}: expected a boundary of 2 or more, found 1: {target}")
    else:
        nth = target.draw(below - below // boundary)
        left = 1 + nth + nth // (boundary - 1)  # passes over the multiples
    target.undo.keep(target.path, left, size)
    os.truncate(target.path, left)
    return Change(f"from {size} to {left} bytes: {target}", (target.path,))


def _grow(target: Target) -> Change:
    more = bytes(target.draw(256) for _ in range(1 + target.draw(64)))
    target.undo.keep(target.path, target.size, target.size)
    with open(target.path, "ab") as file:
        file.write(more)
    return Change(f"{len(more)} bytes after the {target.size} of {target}", (target.path,))


def _zero(target: Target) -> Change:
    n_before_zeros = 0
    with open(target.path, "rb") as file:
        for offset, block in blocks(file, 0, target.size, backwards=True):
            if kept := block.rstrip(b"\0"):
                n_before_zeros = offset + len(kept)
                break
    if not n_before_zeros:
        raise ValueError(f"{target.kind}: expected a byte other than zero, found none in {target}")
    start = 0 if target.kind is DamageKind.SPARSE else target.draw(n_before_zeros)
    target.undo.keep(target.path, start, target.size)
    with open(target.path, "r+b") as file:
        file.truncate(start)
        file.truncate(target.size)
    return Change(f"a hole from byte {start} to {target.size} of {target}", (target.path,))


def _swap(target: Target) -> Change:
    # Of the regular files of the directory those that share the suffix, and have no other name.
    suffix = os.path.splitext(target.path.name)[1]
    with os.scandir(target.path.parent) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if entry.is_file(follow_symlinks=False)
            and os.path.splitext(entry.name)[1] == suffix
            and os.lstat(entry.path).st_nlink == 1
        )
    partners = [target.path.with_name(name) for name in names if name != target.path.name]
    first = target.draw(max(1, len(partners)))
    for other in partners[first:] + partners[:first]:
        if not _same_bytes(target.path, other):
            target.undo.watch(other)
            target.undo.watch(target.path.parent)
            target.undo.exchange(target.path, other)
            return Change(f"contents of {target} and '{other}'", (target.path, other), other)
    raise ValueError(
        f"{target.kind}: expected a file with the same suffix and other contents beside {target}, "
        f"found {len(partners)} with the same suffix, and none with other contents"
    )


def _same_bytes(path: Path, other: Path) -> bool:
    size = os.path.getsize(path)
    if os.path.getsize(other) != size:
        return False
    with open(path, "rb") as one, open(other, "rb") as two:
        pairs = zip(blocks(one, 0, size), blocks(two, 0, size), strict=True)
        return all(mine == theirs for mine, theirs in pairs)


def _drop(target: Target) -> Change:
    target.undo.watch(target.path.parent)
    target.undo.remove(target.path)
    return Change(f"gone: {target}")


def _copy_or_rename(target: Target) -> Change:
    directory, name = target.path.parent, target.path.name
    taken = set(os.listdir(directory))
    stem, suffix = os.path.splitext(name)
    # Greedy, so that the digits are the last ones; a name without any counts from 1.
    match = re.fullmatch(r"(.*?)([0-9]+)([^0-9]*)", stem, re.DOTALL)
    head, digits, tail = match.groups() if match else (stem, "0", "")
    indices = (str(index).zfill(len(digits)) for index in itertools.count(int(digits) + 1))
    numbered = (f"{head}{index}{tail}{suffix}" for index in indices)
    following = next(candidate for candidate in numbered if candidate not in taken)
    free = [following, *(name + end for end in _ENDINGS if name + end not in taken)]
    other = directory / free[target.draw(len(free))]
    target.undo.watch(directory)
    if target.kind is DamageKind.STRAY:
        target.undo.copy(target.path, other)
        return Change(f"'{other}', a copy of {target}", (other,), other)
    target.undo.move(target.path, other)
    return Change(f"{target} to '{other}'", other=other)


CHANGES: dict[DamageKind, Callable[[Target], Change]] = {
    DamageKind.FLIPPED: _flip,
    DamageKind.TRUNCATED_AT_BOUNDARY: _cut,
    DamageKind.TRUNCATED_INSIDE: _cut,
    DamageKind.TRUNCATED_AT_END: _cut,
    DamageKind.EXTENDED: _grow,
    DamageKind.SWAPPED: _swap,
    DamageKind.MISSING: _drop,
    DamageKind.STRAY: _copy_or_rename,
    DamageKind.RENAMED: _copy_or_rename,
    DamageKind.ZERO_TAIL: _zero,
    DamageKind.SPARSE: _zero,
}
"""What changes a file in the way of its kind. It raises a ValueError for a file that would be as
before, whatever is drawn, and an OSError for one that can not be read or changed."""
