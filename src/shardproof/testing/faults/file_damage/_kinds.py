"""What can be done to a file: each kind is planned first, and then done."""

import dataclasses
import enum
import filecmp
import hashlib
import itertools
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from shardproof.testing.samples._states import flip_bit

_BLOCK = 2**20  # bytes that are held in memory at once
_ENDINGS = (".bak", ".old", ".part", ".tmp", "~")  # which people and programs leave behind


class DamageKind(enum.StrEnum):
    """What is done to a file: docs/damage.md has the table of it."""

    FLIPPED = "flipped"  # one bit is another
    TRUNCATED_AT_BOUNDARY = "truncated-at-boundary"  # cut between two blocks
    TRUNCATED_INSIDE = "truncated-inside"  # cut inside a block; at least one byte is left
    TRUNCATED_AT_END = "truncated-at-end"  # the last 1 to 8 bytes are gone
    EXTENDED = "extended"  # 1 to 64 bytes follow the end
    SWAPPED = "swapped"  # contents are exchanged with another file of the same suffix
    MISSING = "missing"  # it is gone
    STRAY = "stray"  # a copy beside it, under a name that no manifest lists
    RENAMED = "renamed"  # it is beside its place, under a name that no manifest lists
    ZERO_TAIL = "zero-tail"  # from some byte on it reads as zeros; the size is right
    SPARSE = "sparse"  # it was never written: one hole, which reads as zeros; the size is right


class PlannedDamage(NamedTuple):
    """What one kind is about to do."""

    what: str
    act: Callable[[], object]
    written: tuple[Path, ...] = ()  # files whose bytes are other than before
    other: Path | None = None


@dataclasses.dataclass(slots=True)
class Target:
    """The file to damage, and what decides."""

    path: Path
    size: int
    kind: DamageKind
    boundary: int
    key: bytes  # what decides
    n_drawn: int = 0

    def __str__(self) -> str:
        return repr(str(self.path))

    def draw(self, below: int) -> int:
        """Return a number; the next one, each time."""
        # Not from `random`: in other versions of Python most of its methods give other numbers.
        digest = hashlib.sha256(b"%d:%b" % (self.n_drawn, self.key)).digest()
        self.n_drawn += 1
        return int.from_bytes(digest, "big") % below

    def refuse_below(self, least: int) -> None:
        """Raise a ValueError for a file that is too small to be another one afterwards."""
        if self.size < least:
            raise ValueError(
                f"{self.kind}: expected a file of {least} or more bytes, "
                f"found one of {self.size}: {self}"
            )


def _flip(target: Target) -> PlannedDamage:
    target.refuse_below(1)
    byte, bit = divmod(target.draw(8 * target.size), 8)
    what = f"bit {bit} of byte {byte} of {target}"
    return PlannedDamage(what, lambda: flip_bit(target.path, byte, bit), (target.path,))


def _cut(target: Target) -> PlannedDamage:
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
    what = f"from {size} to {left} bytes: {target}"
    return PlannedDamage(what, lambda: os.truncate(target.path, left), (target.path,))


def _grow(target: Target) -> PlannedDamage:
    more = bytes(target.draw(256) for _ in range(1 + target.draw(64)))

    def act() -> None:
        with open(target.path, "ab") as file:
            file.write(more)

    what = f"{len(more)} bytes after the {target.size} of {target}"
    return PlannedDamage(what, act, (target.path,))


def _zero(target: Target) -> PlannedDamage:
    n_read = n_before_zeros = 0
    with open(target.path, "rb") as file:
        while block := file.read(_BLOCK):
            if kept := block.rstrip(b"\0"):
                n_before_zeros = n_read + len(kept)
            n_read += len(block)
    if not n_before_zeros:
        raise ValueError(f"{target.kind}: expected a byte other than zero, found none in {target}")
    start = 0 if target.kind is DamageKind.SPARSE else target.draw(n_before_zeros)

    def act() -> None:
        os.truncate(target.path, start)
        os.truncate(target.path, target.size)

    what = f"a hole from byte {start} to {target.size} of {target}"
    return PlannedDamage(what, act, (target.path,))


def _swap(target: Target) -> PlannedDamage:
    # Of the regular files of the directory those that share the suffix, and have no other name.
    path, suffix = target.path, os.path.splitext(target.path.name)[1]
    with os.scandir(path.parent) as entries:
        names = sorted(
            entry.name
            for entry in entries
            if entry.is_file(follow_symlinks=False)
            and os.path.splitext(entry.name)[1] == suffix
            and os.lstat(entry.path).st_nlink == 1
        )
    partners = [path.with_name(name) for name in names if name != path.name]
    first = target.draw(max(1, len(partners)))
    for other in partners[first:] + partners[:first]:
        filecmp.clear_cache()  # it goes by times
        if not filecmp.cmp(path, other, shallow=False):
            break
    else:
        raise ValueError(
            f"{target.kind}: expected a file with the same suffix and other contents beside "
            f"{target}, found {len(partners)} with the same suffix, and none with other contents"
        )

    def act() -> None:
        modes = [stat.S_IMODE(os.lstat(each).st_mode) for each in (path, other)]
        aside = path.with_name(f".{uuid.uuid4().hex}")
        os.rename(path, aside)
        os.rename(other, path)
        os.rename(aside, other)
        for each, mode in zip((path, other), modes, strict=True):
            os.chmod(each, mode)

    return PlannedDamage(f"contents of {target} and '{other}'", act, (path, other), other)


def _copy_or_rename(target: Target) -> PlannedDamage:
    path, name = target.path, target.path.name
    taken = set(os.listdir(path.parent))
    stem, suffix = os.path.splitext(name)
    # Greedy, so that the digits are the last ones; a name without any counts from 1.
    match = re.fullmatch(r"(.*?)([0-9]+)([^0-9]*)", stem, re.DOTALL)
    head, digits, tail = match.groups() if match else (stem, "0", "")
    indices = (str(index).zfill(len(digits)) for index in itertools.count(int(digits) + 1))
    numbered = (f"{head}{index}{tail}{suffix}" for index in indices)
    following = next(candidate for candidate in numbered if candidate not in taken)
    free = [following, *(name + end for end in _ENDINGS if name + end not in taken)]
    other = path.with_name(free[target.draw(len(free))])
    if target.kind is DamageKind.RENAMED:
        return PlannedDamage(f"{target} to '{other}'", lambda: os.rename(path, other), other=other)

    def act() -> None:
        # Not by `shutil.copy`, whose sendfile(2) pyfakefs 5.7 lets through to real files.
        with open(path, "rb") as source, open(other, "xb") as copy:
            shutil.copyfileobj(source, copy)
        shutil.copymode(path, other)

    return PlannedDamage(f"'{other}', a copy of {target}", act, (other,), other)


PLANS: dict[DamageKind, Callable[[Target], PlannedDamage]] = {
    DamageKind.FLIPPED: _flip,
    DamageKind.TRUNCATED_AT_BOUNDARY: _cut,
    DamageKind.TRUNCATED_INSIDE: _cut,
    DamageKind.TRUNCATED_AT_END: _cut,
    DamageKind.EXTENDED: _grow,
    DamageKind.SWAPPED: _swap,
    DamageKind.MISSING: lambda target: PlannedDamage(f"gone: {target}", target.path.unlink),
    DamageKind.STRAY: _copy_or_rename,
    DamageKind.RENAMED: _copy_or_rename,
    DamageKind.ZERO_TAIL: _zero,
    DamageKind.SPARSE: _zero,
}
"""What plans each kind; a ValueError where the file would be as before, whatever is drawn."""
