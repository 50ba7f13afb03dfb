"""Whether what is under a shard's name is the shard."""

import contextlib
import os
import stat
import threading

from shardproof._base import digest as _digest
from shardproof._base.messages import quoted
from shardproof._base.threads import Stop
from shardproof.fetching.cache._leases import Lease
from shardproof.fetching.cache._places import Slot
from shardproof.fetching.cache._proofs import CacheProof, ProofFiles, digests_of, mark_of, proof_of
from shardproof.fetching.cache._removals import Removals
from shardproof.fetching.sources._source import RemoteFile

__all__ = ["OtherBytesError", "Prover"]

_BLOCK = 2**20


class Prover:
    """Looks for proofs, and makes one where a digest is known.

    Args:
        proofs: What was proven.
        removals: How what is wrong is moved aside.
    """

    def __init__(self, proofs: ProofFiles, removals: Removals) -> None:
        self._proofs, self._removals = proofs, removals

    def prove(
        self, place: Slot, file: RemoteFile, lease: Lease, stop: threading.Event | None
    ) -> CacheProof | None:
        """Return a proof that the source's bytes are there, or None; what is wrong is moved aside.

        Args:
            place: Where.
            file: What the source tells.
            lease: The caller's hold on the shard.
            stop: Set by another thread, it ends the hashing without a proof.

        Raises:
            OSError: It could not be looked at.
        """
        status = place.status()
        if status is None:
            return None
        known = self._proofs.read(file.name, status)
        fits = None if known is None else known.fits(file)
        if known is not None and fits is not None:
            return self._remembered(known, file, status) if fits else None
        is_right = _looks_right(place, file, status, stop)
        if is_right and file.digest is not None:
            digests = digests_of(file.digest, *(known.digests if known else ()))
            placed = known is not None and known.placed
            proof = proof_of(file, status, digests, placed=placed)
            self._proofs.write(proof)
            return proof
        if is_right is False and known is None:
            self._removals.move_aside(place, status, lease)
        return None

    def _remembered(
        self, known: CacheProof, file: RemoteFile, status: os.stat_result
    ) -> CacheProof:
        """From the first time on that a source is asked, a vouched file is its file of then."""
        if not known.wants_identity or file.identity is None:
            return known
        return self._vouch(file, status, known)

    def _vouch(
        self, file: RemoteFile, status: os.stat_result, known: CacheProof | None
    ) -> CacheProof:
        digests, placed = (known.digests, known.placed) if known else ((), False)
        proof = proof_of(file, status, digests, placed=placed, vouched=True)
        self._proofs.write(proof)
        return proof

    def take_over(
        self, place: Slot, file: RemoteFile, stop: threading.Event, *, trust: bool
    ) -> bool:
        """Record a file that somebody else put there; return whether its digest is proven.

        Args:
            place: Where.
            file: What the source tells.
            stop: Set by another thread, it ends the hashing.
            trust: Whether to record what nobody states a digest of.

        Raises:
            OtherBytesError: It is not the source's; or that can't be told, and ``trust`` is False.
            OSError: It could not be looked at.
        """
        status = os.stat(place.base, dir_fd=place.fd, follow_symlinks=False)
        known = self._proofs.read(file.name, status)
        _refuse_others(file, status, known)
        if file.digest is None:
            if not trust:
                raise OtherBytesError("a digest that the source states", "none")
            os.close(place.open())  # what can't be read is nobody's shard
            if known is None or known.wants_identity:
                self._vouch(file, status, known)
            return False
        wanted = _digest.parse(file.digest)
        found = _hashed(place, wanted.algorithm, status, stop)
        if found is None or not _digest.same(found, wanted):
            raise OtherBytesError(str(wanted), str(found or "a file that changed meanwhile"))
        digests = digests_of(file.digest, *(known.digests if known else ()))
        placed = known is not None and known.placed
        self._proofs.write(proof_of(file, status, digests, placed=placed))
        return True


class OtherBytesError(Exception):
    """What is there is not the source's.

    Args:
        expected: What the source has.
        found: What is there.
        is_size: Whether the sizes differ.
    """

    def __init__(self, expected: str, found: str, *, is_size: bool = False) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.expected, self.found, self.is_size = expected, found, is_size


def _refuse_others(file: RemoteFile, status: os.stat_result, known: CacheProof | None) -> None:
    if file.size is None and not status.st_size:
        raise OtherBytesError("more than 0 bytes", "0 bytes", is_size=True)
    if file.size not in {None, status.st_size}:
        raise OtherBytesError(f"{file.size} bytes", f"{status.st_size} bytes", is_size=True)
    if file.digest is None and known is not None and not known.fits(file):
        found = f"what was fetched when it was {quoted(str(known.identity))}"
        raise OtherBytesError(f"the file that is {quoted(str(file.identity))} at the source", found)


def _looks_right(
    place: Slot, file: RemoteFile, status: os.stat_result, stop: threading.Event | None
) -> bool | None:
    """Whether a file that nobody remembers is the right one; None if that can't be told."""
    if not stat.S_ISREG(status.st_mode):
        return False
    if file.digest is None:
        return None  # a size alone may be a mistake of the source: what it gives will tell
    if file.size not in {None, status.st_size}:
        return False
    wanted = _digest.parse(file.digest)
    found = _hashed(place, wanted.algorithm, status, stop or Stop())
    return None if found is None else _digest.same(found, wanted)


def _hashed(
    place: Slot, algorithm: str, status: os.stat_result, stop: threading.Event
) -> _digest.Digest | None:
    """The digest of a file; None if it changed meanwhile, is gone, or nobody wants it any more."""
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
