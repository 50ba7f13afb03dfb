"""Write a file as its bytes come, in any order; prove that they are all and the right ones.

Beside it lies a record of which file it is and which bytes have come. The first line names the
file. Each other line is about some bytes, and has their hash; it is appended after they were
written, so that a process may be killed at any moment. No line is believed: after a power cut there
may be lines of bytes that never came to the disk, so bytes are compared with their lines before a
fetch goes on from there.
"""

import bisect
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import xxhash

from shardproof._base import digest, files
from shardproof._base.names import OPEN_FLAGS
from shardproof._base.work import Deadline
from shardproof.errors import SourceError
from shardproof.fetching.sources._source import RemoteFile

_BLOCK = 2**20
_SYNC_BYTES = 16 * 2**20
_RECORD_BYTES = 256 * 2**20  # after which its record is synced: no more may a power cut cost
_MAX_SPANS = 1000  # of what is taken over; what is missing between two is a request
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
        self._append(b"".join([msgspec.json.encode(provenance) + b"\n", *map(_line, extents)]))
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


class PartialFile:
    """A file that is being written, in any order, and the record of what has come."""

    def __init__(self, fd: int, record: PartRecord) -> None:
        self._fd, self._record = fd, record
        self._forget()

    def restart(self) -> None:
        """Forget all that has come."""
        self._record.forget()
        os.ftruncate(self._fd, 0)
        self._forget()

    def _forget(self) -> None:
        self.size: int | None = None
        self.identity: str | None = None
        self.is_left = False
        self._have: list[tuple[int, int]] = []
        self._hashed = self._unsynced = self._unrecorded = 0
        self._sha256: Any = hashlib.sha256()
        self._unbegun: Provenance | None = None
        self._only: list[tuple[int, Sequence[bytes], int]] = []

    def begin_record(self, provenance: Provenance) -> None:
        """Note of which file the bytes are, to be written down when a second piece comes."""
        if not self._record.is_begun and not self._have:
            self._unbegun = provenance

    def record_what_came(self) -> None:
        """Write down the first piece too, if it is not."""
        known, self._unbegun = self._unbegun, None
        if known is not None:
            self._record.begin(known)
        for at, chunks, n_bytes in self._only:
            self._record.add(at, chunks, n_bytes)
        self._only = []

    @property
    def can_go_on(self) -> bool:
        """Whether another fetch could go on from here."""
        return (self._record.is_begun or self._unbegun is not None) and bool(self._have)

    def take_over(
        self, provenance: Provenance, extents: Iterable[Extent], fd: int, deadline: Deadline
    ) -> None:
        """Take in those bytes in ``fd``, this file or another one, whose hash is right."""
        size = os.fstat(fd).st_size
        # With no digest, the source has to be asked for something, to say whose bytes these are.
        last = provenance.size if provenance.digest is None else None
        likely = (each for each in extents if each.start < each.stop <= size and each.stop != last)
        proven = [extent for extent in sorted(likely) if self._take(extent, fd, deadline)]
        os.ftruncate(self._fd, max((extent.stop for extent in proven), default=0))
        if not proven:
            return
        self.size, self.identity, self.is_left = provenance.size, provenance.identity, True
        self._record.begin(provenance, proven)

    def _take(self, extent: Extent, fd: int, deadline: Deadline) -> bool:
        """Take in an extent; go on with the digest of the whole where it follows what is proven."""
        if len(self._have) == _MAX_SPANS:
            return False
        start, stop, expected = extent
        sha256 = self._sha256.copy() if start == self._hashed else None
        found = hash_of(start, stop)
        at = start
        while at < stop and (block := os.pread(fd, min(_BLOCK, stop - at), at)):
            deadline.raise_if_stopped()
            found.update(block)
            if sha256 is not None:
                sha256.update(block)
            if fd != self._fd:
                _write_all(self._fd, [block], at, len(block))
            at += len(block)
        if found.hexdigest() != expected:
            return False
        self._add(start, stop)
        if sha256 is not None:
            self._sha256, self._hashed = sha256, stop
        return True

    @property
    def n_bytes(self) -> int:
        """How many bytes are here."""
        return sum(stop - start for start, stop in self._have)

    def expect(self, size: int | None) -> None:
        """Take in how large the file is to be; refuse another size than before."""
        if size is not None and self.size not in {None, size}:
            problem = f"expected {self.size} bytes, the source has {size}"
            raise SourceError(problem, kind="other-bytes")
        self.size = self.size if size is None else size

    def missing(self) -> list[tuple[int, int | None]]:
        """Return the spans that have not come yet."""
        gaps: list[tuple[int, int | None]] = []
        at = 0
        for start, stop in self._have:
            if start > at:
                gaps.append((at, start))
            at = stop
        if self.size is None or at < self.size:
            gaps.append((at, self.size))
        return gaps

    def write(self, at: int, chunks: Sequence[bytes]) -> int:
        """Put bytes in their place and return how many; those that follow the others are hashed."""
        n_bytes = sum(map(len, chunks))
        if self.size is not None and at + n_bytes > self.size:
            raise SourceError(f"expected {self.size} bytes, found more", kind="other-bytes")
        _write_all(self._fd, chunks, at, n_bytes)
        if self._unbegun is not None and not self._have and at + n_bytes == self.size:
            self._only = [(at, chunks, n_bytes)]
        else:
            self.record_what_came()
            self._record.add(at, chunks, n_bytes)
        self._add(at, at + n_bytes)
        self._unsynced += n_bytes
        self._unrecorded += n_bytes
        if self._unsynced >= _SYNC_BYTES:
            files.begin_to_sync(self._fd)
            self._unsynced = 0
        if self._unrecorded >= _RECORD_BYTES:
            self._record.sync()
            self._unrecorded = 0
        if at == self._hashed:
            for chunk in chunks:
                self._sha256.update(chunk)
            self._hashed += n_bytes
        return n_bytes

    def _add(self, start: int, stop: int) -> None:
        first = bisect.bisect_left(self._have, start, key=lambda span: span[1])
        behind = bisect.bisect_right(self._have, stop, key=lambda span: span[0])
        touched = self._have[first:behind]
        if touched:
            start, stop = min(start, touched[0][0]), max(stop, touched[-1][1])
        self._have[first:behind] = [(start, stop)]

    def prove(self, wanted: RemoteFile, deadline: Deadline) -> str:
        """Return ``"sha256:<hex>"`` of the bytes, if they are all and the right ones."""
        size = self.n_bytes
        expected = self.size if wanted.size is None else wanted.size
        if (expected is not None and size != expected) or self._have not in ([], [(0, size)]):
            raise SourceError(f"expected {expected} bytes, found {size}", kind="other-bytes")
        if not size and wanted.size is None and wanted.digest is None:
            problem = "expected a shard, found an empty file that no size or digest confirms"
            raise SourceError(problem, kind="other-bytes")
        while self._hashed < size:  # what came out of order is read back, from memory most likely
            deadline.raise_if_stopped()
            block = os.pread(self._fd, min(_BLOCK, size - self._hashed), self._hashed)
            if not block:
                raise OSError(f"the temporary file became shorter than {size} bytes")
            self._sha256.update(block)
            self._hashed += len(block)
        sha256 = found = digest.Digest("sha256", self._sha256.hexdigest())
        if wanted.digest is not None:
            promised = digest.parse(wanted.digest)
            if promised.algorithm != "sha256":
                go_on = deadline.raise_if_stopped
                found = digest.of_file(self._fd, promised.algorithm, size, go_on=go_on)
            if promised != found:
                problem = f"expected the digest {promised}, found {found} of {size} bytes"
                raise SourceError(problem, kind="other-bytes")
        return str(sha256)


def _write_all(fd: int, chunks: Sequence[bytes], at: int, n_bytes: int) -> None:
    # Short writes happen where the disk is full, and beyond 2 GiB: write(2).
    written = os.pwritev(fd, chunks, at)
    if written < n_bytes:
        files.write_at(fd, memoryview(b"".join(chunks))[written:], at + written)
