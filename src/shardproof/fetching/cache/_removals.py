"""Take a shard away from where it is, if no process wants it: to remove it, or to move it aside.

It is renamed into the directory of a removal, which its holder can break off (`_leases`), and
looked at there once more: what came in its place a moment before goes back.
"""

import contextlib
import logging
import os
import stat
import threading

from shardproof._base import files
from shardproof._base.liveness import mark_of
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_there
from shardproof.fetching.cache._leases import Lease, Leases
from shardproof.fetching.cache._places import Slot, key_of, place_of
from shardproof.fetching.cache._proofs import CacheProof, ProofFiles

_ATTEMPTS = 20

logger = logging.getLogger("shardproof.fetching")


class Removals:
    """How shards leave a cache, whose root is a real absolute path."""

    def __init__(self, root: str, proofs: ProofFiles, leases: Leases) -> None:
        self._root, self._proofs, self._leases = root, proofs, leases
        self._lock = threading.Lock()  # several threads make room
        self._used: dict[str, int] = {}  # when each was last seen to have been used

    def remove(self, place: Slot, but: Lease | None = None, *, readers: bool = False) -> bool:
        """Remove a shard that this package put there and is as it was; return whether it went."""
        status = place.status()
        proof = self._proofs.read(place.name, status) if status else None
        if status is None or proof is None or not proof.placed:
            return False
        return self._take_away(place, status, proof, but, readers=readers)

    def discard(self, name: str) -> bool:
        """Remove a shard if no process holds it; what fails is logged."""
        try:
            with place_of(self._root, name) as place:
                return self.remove(place)
        except OSError as error:
            logger.warning("Shard '%s' could not be removed: %s", shown(name), told(error))
            return False

    def has(self, proof: CacheProof) -> bool:
        """Return whether the file is there that a proof is about; raise if that can't be seen."""
        with place_of(self._root, proof.name) as place:
            return place.has(proof.mark)

    def forget_stale(self, proof: CacheProof) -> None:
        """Remove a proof of no file, unless somebody puts it there or takes it away."""
        key = key_of(proof.name)
        is_at_work = key in dict(self._leases.removals()) or self._leases.holders(key)
        if not is_at_work and not self.has(proof):
            self._proofs.forget(proof)

    def make_way(self, place: Slot, status: os.stat_result, but: Lease) -> bool:
        """Take away what is there, unless another process reads it; say whether it is gone."""
        proof = self._proofs.read(place.name, status)
        return self._take_away(place, status, proof, but, readers=True)

    def _take_away(
        self,
        place: Slot,
        status: os.stat_result,
        proof: CacheProof | None,
        but: Lease | None,
        *,
        readers: bool,
    ) -> bool:
        key, mark = key_of(place.name), mark_of(status)
        for _ in range(_ATTEMPTS):
            with self._leases.removal(key) as directory:
                if self._leases.holders(key, but, readers=readers):
                    return False
                taken = os.path.join(directory, place.base)
                # A process that finds what a killed one left may be faster, and do the rest.
                with contextlib.suppress(FileNotFoundError):
                    if place.has(mark) and _move(place, taken):
                        if mark_of(os.lstat(taken)) == mark:
                            self._finish(place, taken, proof)
                            return True
                        if not files.move_new(taken, place.base, dir_fd=place.fd):
                            files.move(taken, files.aside_name(place.base), target_fd=place.fd)
            if not place.has(mark):
                return False
        return False

    def _finish(self, place: Slot, taken: str, proof: CacheProof | None) -> None:
        # What this package did not put there gets a name that no pattern for shards matches.
        if proof is not None and proof.placed:
            files.remove(taken)
        else:
            aside = files.aside_name(place.base)
            files.move(taken, aside, target_fd=place.fd)
            path = os.path.join(os.path.dirname(place.path), aside)
            text = "'%s' was not the right one, and is '%s' now"
            logger.warning(text, shown(place.path), shown(path))
        if proof is not None:
            self._proofs.forget(proof)

    def finish_left(self) -> None:
        """Do what is left of removals whose process was killed."""
        for key, directory in self._leases.removals():
            with contextlib.suppress(FileNotFoundError):
                for base in os.listdir(directory):  # which no process can hold any more
                    taken = os.path.join(directory, base)
                    status = os.lstat(taken)
                    proof = self._proofs.of_key(key, status)
                    if proof is not None and proof.placed and stat.S_ISREG(status.st_mode):
                        files.remove(taken)
                        self._proofs.forget(proof)
                        continue
                    aside = os.path.join(self._root, files.aside_name(base))
                    files.move(taken, aside)
                    logger.warning(
                        "Found what a killed process had taken away; it is '%s' now", shown(aside)
                    )
            files.remove_empty(directory)  # of one that is at work it is made anew

    def shrink(self, most: int) -> bool:
        """Discard what was used least recently, until no more than ``most`` bytes are taken."""
        with self._lock:
            sizes = self._proofs.placed()
            taken = sum(sizes.values())
            if taken > most:
                self._used = {
                    name: self._used.get(name) or self._proofs.used(name) for name in sizes
                }
            oldest = sorted(sizes, key=lambda name: self._used[name]) if taken > most else []
            while taken > most and oldest:
                name = oldest.pop(0)
                if self._used[name] != (used := self._proofs.used(name)):  # by others, meanwhile
                    self._used[name] = used  # its turn comes after those before it
                    oldest = sorted([*oldest, name], key=lambda name: self._used[name])
                elif self._has_gone(name):
                    taken -= sizes[name]
            return taken <= most

    def _has_gone(self, name: str) -> bool:
        """Discard a shard; return whether it is gone, whoever has removed it."""
        proof = self._proofs.of_file(name)
        if proof is None or self.discard(proof.name):
            return True
        with contextlib.suppress(OSError):  # what can't be looked at can't be removed either
            if not self.has(proof):
                self.forget_stale(proof)
                return True
        return False


def _move(place: Slot, taken: str) -> bool:
    """Return whether it could be taken away: not if it is gone, or its holder was faster."""
    try:
        files.move(place.base, taken, source_fd=place.fd)
    except FileNotFoundError:
        return is_there(taken)  # on NFS what was done may be said to have failed: rename(2)
    return True
