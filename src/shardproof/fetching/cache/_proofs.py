"""Whether what is under a shard's name is the shard, and whether this package put it there.

A proof is about one file: its name has a digest of the file's size, time of last change and inode,
so that a file which was changed or replaced since has none. A proof is written before its file
gets the shard's name. So whenever a process is killed, a file that this package put there is known
for one; a proof without a file proves nothing.
"""

import contextlib
import errno
import hashlib
import os
import stat
import threading
from collections.abc import Iterator, Sequence

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files, json
from shardproof._base.liveness import Mark, mark_of
from shardproof._base.messages import quoted
from shardproof._base.work import Cancelled, Deadline
from shardproof.errors import ManifestError
from shardproof.fetching.cache._places import Slot, key_of, refuse_name
from shardproof.fetching.sources._source import RemoteFile

MAX_PROOF_BYTES = 2**16  # of one that is read; in use they have some hundred
_MAX_IDENTITY = 2**13
_PLACED = ".placed"  # after the size, at the end of the names of proofs of what is placed


class CacheProof(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file in the cache."""

    name: str
    size: int
    mtime_ns: int
    inode: int
    identity: str | None = None  # the source's word for the version whose bytes these are
    digests: tuple[str, ...] = ()  # of the bytes, each "<algorithm>:<hex>"
    placed: bool = False  # by this package: then it may remove the file
    vouched: bool = False  # no digest is stated, and a user said that these are the right bytes

    @property
    def mark(self) -> Mark:
        """What tells the file from others."""
        return self.size, self.mtime_ns, self.inode

    def fits(self, file: RemoteFile) -> bool | None:
        """Whether these are the source's bytes; None if only a digest of the file can tell."""
        # A digest that is stated must be known of the bytes; else an identity must be the same. A
        # source that states neither is taken by name and size.
        if file.size not in {None, self.size}:
            return False
        if file.digest is None:
            return file.identity in {None, self.identity} or self.wants_identity
        asked = _digest.parse(file.digest)
        digests = map(_digest.parse, self.digests)
        known = [digest for digest in digests if digest.algorithm == asked.algorithm]
        return asked in known if known else None

    @property
    def wants_identity(self) -> bool:
        """Whether the file is taken for the one that the source has when it is asked."""
        return self.vouched and self.identity is None


def _filename(key: str, mark: Mark, *, placed: bool) -> str:
    digest = hashlib.blake2b("/".join(map(str, mark)).encode(), digest_size=8)
    return f"{key}.{digest.hexdigest()}.{mark[0]}{_PLACED if placed else '.known'}"


def digests_of(*digests: str | None) -> tuple[str, ...]:
    """Return those that are stated, each once, as `CacheProof.digests` has them."""
    return tuple(sorted({str(_digest.parse(digest)) for digest in digests if digest is not None}))


def proof_of(
    file: RemoteFile,
    status: os.stat_result,
    digests: Sequence[str],
    *,
    placed: bool,
    vouched: bool = False,
) -> CacheProof:
    """Return the proof that a file with this status has the source's bytes."""
    size, mtime_ns, inode = mark_of(status)
    is_short = file.identity is not None and len(file.identity) <= _MAX_IDENTITY
    return CacheProof(
        name=file.name,
        size=size,
        mtime_ns=mtime_ns,
        inode=inode,
        identity=file.identity if is_short else None,
        digests=tuple(digests),
        placed=placed,
        vouched=vouched,
    )


class ProofFiles:
    """The directory with the proofs of a cache: looks for them, and makes one of a known digest."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def path_of(self, proof: CacheProof) -> str:
        """Return the path of a proof's file."""
        name = _filename(key_of(proof.name), proof.mark, placed=proof.placed)
        return os.path.join(self.directory, name)

    def read(self, name: str, status: os.stat_result) -> CacheProof | None:
        """Return the proof of a file; None where there is none that can be read."""
        proof = self.of_key(key_of(name), status)
        return proof if proof is not None and proof.name == name else None

    def of_key(self, key: str, status: os.stat_result) -> CacheProof | None:
        """Return the proof of a file of which only the key is known."""
        mark = mark_of(status)
        names = (_filename(key, mark, placed=placed) for placed in (True, False))
        return next(filter(None, map(self.of_file, names)), None)

    def of_place(self, place: Slot) -> CacheProof | None:
        """Return the proof of what is there now; None where there is none, or nothing."""
        status = place.status()
        return self.read(place.name, status) if status else None

    def write(self, proof: CacheProof) -> None:
        """Record a proof, in place of what was known of the same file."""
        files.write_whole(self.path_of(proof), msgspec.json.encode(proof))

    def forget(self, proof: CacheProof) -> None:
        """Remove a proof."""
        files.remove(self.path_of(proof))

    def use(self, proof: CacheProof) -> None:
        """Record that the shard is wanted now; the file system's clock says when."""
        with contextlib.suppress(OSError):  # it may be another user's
            os.utime(self.path_of(proof))

    def used(self, filename: str) -> int:
        """Return when a proof's shard was last used, in nanoseconds; 0 if the proof is gone."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(os.path.join(self.directory, filename)).st_mtime_ns
        return 0

    def placed(self) -> dict[str, int]:
        """Return the sizes of placed shards by the names of their proofs; of those gone, too."""
        names = [name for name in os.listdir(self.directory) if name.endswith(_PLACED)]
        sizes = {name: name.removesuffix(_PLACED).rpartition(".")[2] for name in names}
        return {name: int(size) for name, size in sizes.items() if size.isdecimal()}

    def all(self) -> Iterator[CacheProof]:
        """Yield each proof; those of files that are gone, too."""
        yield from filter(None, map(self.of_file, sorted(os.listdir(self.directory))))

    def of_file(self, filename: str) -> CacheProof | None:
        """Return what is in a proof's file; None for what proves nothing."""
        # Others may write anything there.
        try:
            proof = json.read(self.directory, filename, CacheProof, max_bytes=MAX_PROOF_BYTES)
            refuse_name(proof.name)
            digests_of(*proof.digests)
        except (ManifestError, ValueError):
            return None
        return proof if os.path.basename(self.path_of(proof)) == filename else None

    def prove(
        self, place: Slot, file: RemoteFile, status: os.stat_result, stop: threading.Event
    ) -> CacheProof | None:
        """Return a proof of what is there, or None; raise if it is neither known nor the shard."""
        known = self.read(file.name, status)
        fits = None if known is None else known.fits(file)
        if known is not None and fits is not None:
            if fits and known.wants_identity and file.identity is not None:
                # From the first time on that the source is asked, it is the source's file of then.
                known = self._record(file, status, known, vouched=True)
            return known if fits else None
        if stat.S_ISREG(status.st_mode):
            if file.digest is None:
                return None  # a size alone may be a mistake of the source: what it gives will tell
            if file.size in {None, status.st_size}:
                wanted = _digest.parse(file.digest)
                found = _hashed(place, wanted.algorithm, status, stop)
                if found is None:
                    return None
                if found == wanted:
                    return self._record(file, status, known)
        if known is None:
            raise OtherBytesError("the source's file", "another one")
        return None

    def take_over(
        self, place: Slot, file: RemoteFile, stop: threading.Event, *, trust: bool
    ) -> bool:
        """Record a file that another tool put there; return whether its digest is proven."""
        status = place.status()
        if status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file.name)
        known = self.read(file.name, status)
        if file.size is None and not status.st_size:
            raise OtherBytesError("more than 0 bytes", "0 bytes", is_size=True)
        if file.size not in {None, status.st_size}:
            raise OtherBytesError(f"{file.size} bytes", f"{status.st_size} bytes", is_size=True)
        if file.digest is None:
            if known is not None and not known.fits(file):
                expected = f"the file that is {quoted(str(file.identity))} at the source"
                found = f"what was fetched when it was {quoted(str(known.identity))}"
                raise OtherBytesError(expected, found)
            if not trust:
                raise OtherBytesError("a digest that the source states", "none")
            os.close(place.open())  # what can't be read is no shard
            if known is None or known.wants_identity:
                self._record(file, status, known, vouched=True)
            return False
        wanted = _digest.parse(file.digest)
        digest = _hashed(place, wanted.algorithm, status, stop)
        if digest != wanted:
            raise OtherBytesError(str(wanted), str(digest or "a file that changed meanwhile"))
        self._record(file, status, known)
        return True

    def _record(
        self,
        file: RemoteFile,
        status: os.stat_result,
        known: CacheProof | None,
        *,
        vouched: bool = False,
    ) -> CacheProof:
        """Write down that these are the source's bytes, beside what was known of the same file."""
        digests = digests_of(file.digest, *(known.digests if known else ()))
        placed = known is not None and known.placed
        proof = proof_of(file, status, digests, placed=placed, vouched=vouched)
        self.write(proof)
        return proof


class OtherBytesError(Exception):
    """What lies under a shard's name is not the source's; ``is_size`` if the sizes differ."""

    def __init__(self, expected: str, found: str, *, is_size: bool = False) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected, self.found, self.is_size = expected, found, is_size


def _hashed(
    place: Slot, algorithm: str, status: os.stat_result, stop: threading.Event
) -> _digest.Digest | None:
    """Return a file's digest; None if it changed meanwhile, is gone, or ``stop`` was set."""
    go_on = Deadline(None, stop).raise_if_stopped
    try:
        with open(place.open(), "rb", buffering=0) as file:
            digest = _digest.of_file(file.fileno(), algorithm, status.st_size, go_on=go_on)
            return digest if mark_of(os.fstat(file.fileno())) == mark_of(status) else None
    except (Cancelled, FileNotFoundError):
        return None
