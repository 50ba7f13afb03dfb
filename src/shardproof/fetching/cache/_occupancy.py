"""What the shards of a cache take together, and which of them were used least recently.

Each process remembers what it has read: the name of a proof's file says of which bytes it tells, so
that none has to be read twice. For each shard that comes, the names are listed: what other
processes brought or removed meanwhile is seen by them. When a shard was last used is remembered
too, and looked at once more before that shard goes.
"""

import contextlib
import heapq
import threading
from typing import NamedTuple

from shardproof.fetching.cache._places import key_of
from shardproof.fetching.cache._proofs import CacheProof, ProofFiles
from shardproof.fetching.cache._removals import Removals


class _SeenShard(NamedTuple):
    """A shard that this package placed, and when it was seen to have been used, in nanoseconds."""

    proof: CacheProof
    used: int


class Occupancy:
    """How many bytes the shards take that this package placed, as one process knows it."""

    def __init__(self, proofs: ProofFiles, removals: Removals) -> None:
        self._proofs, self._removals = proofs, removals
        self._lock = threading.Lock()  # several threads make room
        self._n_looks_left = 0
        self._forget_all()

    def _forget_all(self) -> None:
        self._seen: dict[str, _SeenShard | None] = {}  # None: of what this package did not place
        self._oldest: list[tuple[int, str]] = []  # a heap, with what is gone
        self._n_bytes = 0

    def shrink(self, most: int) -> bool:
        """Discard what was used least recently until ``most`` bytes are left; say if it is so."""
        with self._lock:
            try:
                return self._shrink(most)
            except BaseException:
                self._n_looks_left = 0  # what it was at is half done: then all is seen anew
                raise

    def _shrink(self, most: int) -> bool:
        names = self._look()
        staying: list[tuple[int, str]] = []
        while self._n_bytes > most and self._oldest:
            used, filename = heapq.heappop(self._oldest)
            seen = self._seen.get(filename)
            if seen is None or seen.used != used:
                continue
            now = self._proofs.used(filename)
            if now is not None and now != used:  # its turn comes after those before it
                self._count(filename, _SeenShard(seen.proof, now))
            elif now is None or self._has_gone(seen.proof, names):
                self._uncount(filename)
            else:
                staying.append((used, filename))
        for entry in staying:
            heapq.heappush(self._oldest, entry)
        return self._n_bytes <= most

    def _has_gone(self, proof: CacheProof, names: set[str]) -> bool:
        """Discard a shard; return whether it is gone, whoever has removed it."""
        stale = self._proofs.paths_of(key_of(proof.name), names)
        if self._removals.discard(proof.name, stale):
            return True
        with contextlib.suppress(OSError):
            return not self._removals.has(proof)
        return False

    def _look(self) -> set[str]:
        """Take in what has come and what is gone; return the names of all files of proofs."""
        names = self._proofs.names()
        # Of a shard that another program has removed there still is a proof. So after as many looks
        # as there are proofs all is seen anew: that is one of them for each look.
        if not self._n_looks_left:
            self._forget_all()
            self._n_looks_left = len(names) + 1
        self._n_looks_left -= 1
        for filename in self._seen.keys() - names:
            self._uncount(filename)
        for filename in names - self._seen.keys():
            self._read(filename)
        return names

    def _read(self, filename: str) -> None:
        """Remember what a proof tells, unless that may be otherwise at the next look."""
        proof, used = self._proofs.of_file(filename), self._proofs.used(filename)
        if proof is None or used is None:
            return
        if not proof.placed:
            self._seen[filename] = None
            return
        with contextlib.suppress(OSError):  # what can't be looked at can't be removed either
            if self._removals.has(proof):
                self._count(filename, _SeenShard(proof, used))
            else:
                self._removals.forget_stale(proof)

    def _count(self, filename: str, shard: _SeenShard) -> None:
        self._uncount(filename)
        self._seen[filename] = shard
        self._n_bytes += shard.proof.size
        heapq.heappush(self._oldest, (shard.used, filename))

    def _uncount(self, filename: str) -> None:
        shard = self._seen.pop(filename, None)
        if shard is not None:
            self._n_bytes -= shard.proof.size
