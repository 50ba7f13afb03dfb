"""Write down of a part which file it is of, and which of its bytes have come.

The first line names the file. Each other line is about some bytes, and has their hash; it is
appended after they were written, so that a process may be killed at any moment. No line is
believed: after a power cut there may be lines of bytes that never came to the disk, so bytes are
compared with their lines before a fetch goes on from there.
"""

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import xxhash

from shardproof._base import files
from shardproof._base.names import OPEN_FLAGS

_VERSION = 1
_MAX_HEAD = 2**16
_MAX_BYTES = 2**25
"""Of a record that is read, which takes several times as much memory; what it tells of behind them
is fetched again. Four connections write as much in four hours, at ten lines a second."""
_LINE = re.compile(rb"([0-9]{1,18}) ([0-9]{1,18}) ([0-9a-f]{32})\n")
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Which file a part is of."""

    source: str  # its address without credentials, for people
    resource: str  # what tells two sources apart, and gives no secret away
    name: str
    size: int | None = None
    identity: str | None = None  # what the source answers for equal bytes only, if it does
    digest: str | None = None  # that its bytes were promised to have
    version: int = _VERSION  # of this form

    def going_on(self, wanted: "Provenance") -> "Provenance | None":
        """Return what is known of a part if it can become one of the wanted file; else None."""
        is_same_place = (self.resource, self.name) == (wanted.resource, wanted.name)
        identity = self.identity if is_same_place else None
        if self.version != _VERSION or _differ(self.size, wanted.size):
            return None
        is_promised = None not in {self.digest, wanted.digest}
        if _differ(self.digest, wanted.digest) or (identity is None and not is_promised):
            return None
        size = self.size if wanted.size is None else wanted.size
        return msgspec.structs.replace(wanted, size=size, identity=identity)


def _differ(one: object, other: object) -> bool:
    return None not in {one, other} and one != other


class Extent(NamedTuple):
    """Bytes of a part that have come, from ``start`` up to ``stop``, and their hash."""

    start: int
    stop: int
    hash: str


def hash_of(start: int, stop: int) -> xxhash.xxh3_128:
    """Begin the hash of an extent; where it lies is a part of it."""
    return xxhash.xxh3_128(b"%d %d " % (start, stop))


class PartRecord:
    """The record of one part, in a directory in which no other process writes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def is_begun(self) -> bool:
        """Whether another fetch could go on from the part."""
        return self._fd is not None

    def begin(self, provenance: Provenance, extents: Sequence[Extent] = ()) -> None:
        """Begin it, in place of what was written before."""
        self.close()
        new = f"{self._path}.new"
        files.remove(new)
        self._fd = os.open(new, _WRITE_FLAGS, 0o666)
        lines = [msgspec.json.encode(provenance) + b"\n", *map(_line, extents)]
        self._append(b"".join(lines))
        files.move(new, self._path)

    def add(self, at: int, chunks: Sequence[bytes], n_bytes: int) -> None:
        """Write down bytes that were written at a place."""
        if self._fd is None:
            return
        found = hash_of(at, at + n_bytes)
        for chunk in chunks:
            found.update(chunk)
        self._append(_line(Extent(at, at + n_bytes, found.hexdigest())))

    def _append(self, data: bytes) -> None:
        assert self._fd is not None, "it was begun"  # noqa: S101 - for a type checker
        while data:
            data = data[os.write(self._fd, data) :]

    def sync(self) -> None:
        """Let what is written here be there after a power cut."""
        if self._fd is not None:
            files.sync(self._fd)

    def forget(self) -> None:
        """Remove the record: nothing of what came is known any more."""
        if self._fd is not None:
            self.close()
            files.remove(self._path)

    def close(self) -> None:
        """Write no more."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _line(extent: Extent) -> bytes:
    return b"%d %d %s\n" % (extent.start, extent.stop, extent.hash.encode())


def provenance_in(path: str) -> Provenance | None:
    """Return of which file a part is; None if its record doesn't tell."""
    try:
        with open(os.open(path, OPEN_FLAGS), "rb") as file:
            return msgspec.json.decode(file.readline(_MAX_HEAD), type=Provenance)
    except (FileNotFoundError, RecursionError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def extents_in(path: str) -> Iterator[Extent]:
    """Yield what a record tells of bytes; lines that were torn, or are too many, tell nothing."""
    n_left = _MAX_BYTES
    with open(os.open(path, OPEN_FLAGS), "rb") as file:
        file.readline(_MAX_HEAD)
        while line := file.readline(min(n_left, _MAX_HEAD)):
            n_left -= len(line)
            found = _LINE.fullmatch(line)
            if found:
                yield Extent(int(found[1]), int(found[2]), found[3].decode())
