"""Whether what is under a shard's name is the shard."""

import contextlib
import os
import stat
import threading

from shardproof._base import digest as _digest
from shardproof._base.liveness import mark_of
from shardproof._base.messages import quoted
from shardproof._base.work import Stop
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.cache._places import Slot
from shardproof.fetching.cache._proofs import CacheProof, ProofFiles, digests_of, proof_of
from shardproof.fetching.cache._removals import Removals
from shardproof.fetching.sources._source import RemoteFile

_BLOCK = 2**20


class Prover:
    """Looks for proofs, and makes one where a digest is known."""

    def __init__(self, proofs: ProofFiles, removals: Removals) -> None:
        self._proofs, self._removals = proofs, removals

    def prove(
        self, place: Slot, file: RemoteFile, lease: Lease, stop: threading.Event | None
    ) -> CacheProof | None:
        """Return a proof of what is there, or None; what is not the source's is moved aside."""
        status = place.status()
        if status is None:
            return None
        known = self._proofs.read(file.name, status)
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
                found = _hashed(place, wanted.algorithm, status, stop or Stop())
                if found is None:
                    return None
                if found == wanted:
                    return self._record(file, status, known)
        if known is None:
            self._removals.move_aside(place, status, lease)
        return None

    def take_over(
        self, place: Slot, file: RemoteFile, stop: threading.Event, *, trust: bool
    ) -> bool:
        """Record a file that another tool put there; arguments and errors as `Cache.take_over`."""
        status = os.stat(place.base, dir_fd=place.fd, follow_symlinks=False)
        known = self._proofs.read(file.name, status)
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
        self._proofs.write(proof)
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
    try:
        fd = place.open()
    except FileNotFoundError:
        return None
    with contextlib.closing(os.fdopen(fd, "rb", buffering=0)):
        digest, offset = _digest.begin(algorithm, status.st_size), 0
        while (block := os.pread(fd, _BLOCK, offset)) and offset < status.st_size:
            if stop.is_set():
                return None
            digest.update(block)
            offset += len(block)
        is_unchanged = mark_of(os.fstat(fd)) == mark_of(status)
        return _digest.Digest(algorithm, digest.hexdigest()) if is_unchanged else None
