"""What the shards of a cache take together, and which of them were used least recently.

The names of proofs say what was placed, and how large it is. When each was used is looked up once,
and once more before that shard goes: what others used meanwhile stays.
"""

import threading

from shardproof.fetching.cache._proofs import ProofFiles
from shardproof.fetching.cache._removals import Removals


class Occupancy:
    """How many bytes the shards take that this package placed."""

    def __init__(self, proofs: ProofFiles, removals: Removals) -> None:
        self._proofs, self._removals = proofs, removals
        self._lock = threading.Lock()  # several threads make room
        self._used: dict[str, int] = {}  # when each was last seen to have been used

    def shrink(self, most: int) -> bool:
        """Discard what was used least recently, until no more than ``most`` bytes are taken."""
        with self._lock:
            sizes = self._proofs.placed()
            taken = sum(sizes.values())
            if taken > most:
                self._used = {name: self._used.get(name) or self._look(name) for name in sizes}
            oldest = sorted(sizes, key=lambda name: self._used[name]) if taken > most else []
            while taken > most and oldest:
                name = oldest.pop(0)
                if self._used[name] != (used := self._look(name)):
                    self._used[name] = used  # its turn comes after those before it
                    oldest = sorted([*oldest, name], key=lambda name: self._used[name])
                elif self._has_gone(name):
                    taken -= sizes[name]
            return taken <= most

    def _look(self, name: str) -> int:
        return self._proofs.used(name) or 0  # of what is gone

    def _has_gone(self, name: str) -> bool:
        """Discard a shard; return whether it is gone, whoever has removed it."""
        proof = self._proofs.of_file(name)
        if proof is None or self._removals.discard(proof.name):
            return True
        try:
            if self._removals.has(proof):
                return False
            self._removals.forget_stale(proof)
        except OSError:  # what can't be looked at can't be removed either
            return False
        return True
