"""Whether what is under a shard's name is the shard."""

import contextlib
import os
import stat
import threading

from shardproof import _digest
from shardproof.prefetch.cache._leases import Lease
from shardproof.prefetch.cache._places import Place
from shardproof.prefetch.cache._proofs import Proof, Proofs, digests_of, mark_of, proof_of
from shardproof.prefetch.cache._removals import Removals
from shardproof.prefetch.sources._source import RemoteFile

__all__ = ["Prover"]

_BLOCK = 2**20


class Prover:
    """Looks for proofs, and makes one where a digest is known.

    Args:
        proofs: What was proven.
        removals: How what is wrong is moved aside.
    """

    def __init__(self, proofs: Proofs, removals: Removals) -> None:
        self._proofs, self._removals = proofs, removals

    def prove(
        self, place: Place, file: RemoteFile, lease: Lease, stop: threading.Event | None
    ) -> Proof | None:
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
            return known if fits else None
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


def _looks_right(
    place: Place, file: RemoteFile, status: os.stat_result, stop: threading.Event | None
) -> bool | None:
    """Whether a file that nobody remembers is the right one; None if that can't be told."""
    if not stat.S_ISREG(status.st_mode):
        return False
    if file.digest is None:
        return None  # a size alone may be a mistake of the source: what it gives will tell
    if file.size not in {None, status.st_size}:
        return False
    wanted = _digest.parse(file.digest)
    found = _hashed(place, wanted.algorithm, status, stop or threading.Event())
    return None if found is None else _digest.same(found, wanted)


def _hashed(
    place: Place, algorithm: str, status: os.stat_result, stop: threading.Event
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
