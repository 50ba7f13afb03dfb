"""Take a shard away from where it is, if no process wants it: to remove it, or to move it aside.

It is renamed into the directory of a removal, so that its holder can break that off; see
`_lease_files`. There it is looked at once more: what came in its place a moment before goes back.
Only then it is removed.
"""

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator, Sequence

from shardproof._base import files
from shardproof._base.liveness import is_gone, mark_of
from shardproof._base.messages import shown, told
from shardproof._base.opening import is_there
from shardproof.fetching.cache._lease_files import Kind
from shardproof.fetching.cache._leases import Lease, Leases
from shardproof.fetching.cache._places import Slot, key_of, place_of
from shardproof.fetching.cache._proofs import CacheProof, ProofFiles

_ATTEMPTS = 20

logger = logging.getLogger("shardproof.fetching")


class Removals:
    """How shards leave a cache, whose root is a real absolute path."""

    def __init__(self, root: str, proofs: ProofFiles, leases: Leases) -> None:
        self._root, self._proofs, self._leases = root, proofs, leases

    def remove(
        self,
        place: Slot,
        kind: Kind,
        but: Lease | None = None,
        stale: Sequence[str] | None = None,
    ) -> bool:
        """Remove a shard of ours that is as it was, unless others than ``but`` hold it."""
        # Taken before leases are looked at: of a shard without holders, these are not in use.
        if kind != "lease":
            stale = ()
        elif stale is None:
            stale = self._proofs.paths_of(key_of(place.name))
        status = place.status()
        if status is None:
            is_held = not stale or self._leases.holders(key_of(place.name), kind, but)
            if not is_held and place.status() is None and not self._is_taken(place.name):
                _remove_all(stale)
            return False
        proof = self._proofs.read(place.name, status)
        if proof is None or not proof.placed:
            return False

        def finish(taken: str) -> None:
            _remove_all([taken, *stale, self._proofs.path_of(proof)])

        return self._take_away(place, status, kind, but, finish)

    def discard(self, name: str, stale: Sequence[str] | None = None) -> bool:
        """Remove a shard if no process holds it; what fails is logged. Arguments as of `remove`."""
        try:
            with place_of(self._root, name) as place:
                return place is not None and self.remove(place, "lease", stale=stale)
        except OSError as error:
            logger.warning("Shard '%s' could not be removed: %s", shown(name), told(error))
            return False

    def placed(self) -> Iterator[str]:
        """Yield the name of each shard that this package put there and is as it was."""
        for proof, _ in self._proofs.all():
            with contextlib.suppress(OSError):
                if proof.placed and self.has(proof):
                    yield proof.name

    def has(self, proof: CacheProof) -> bool:
        """Return whether the file is there that a proof is about; raise if that can't be seen."""
        with place_of(self._root, proof.name) as place:
            status = place.status() if place else None
            return status is not None and mark_of(status) == proof.mark

    def forget_stale(self, proof: CacheProof) -> None:
        """Remove a proof whose file was not there, unless a holder may be about to put it there."""
        if self._leases.holders(key_of(proof.name), "lease") or self.has(proof):
            return
        if not self._is_taken(proof.name):
            self._proofs.forget(proof)

    def _is_taken(self, name: str) -> bool:
        """Return whether a process may have taken a shard away that is not there; by its proof."""
        return any(entry.kind == "removal" for entry in self._leases.files.listed(key_of(name)))

    def make_way(self, place: Slot, status: os.stat_result, but: Lease) -> bool:
        """Take away what is there, unless another process reads it; say whether it is gone."""
        proof = self._proofs.read(place.name, status)
        if proof is not None and proof.placed:
            return self.remove(place, "reader", but)
        return self.move_aside(place, status, but)

    def move_aside(self, place: Slot, status: os.stat_result, but: Lease) -> bool:
        """Give what is there a name that no pattern for shards matches; say whether it has it."""
        proof = self._proofs.read(place.name, status)

        def finish(taken: str) -> None:
            aside = files.aside_name(place.base)
            files.move(taken, aside, target_fd=place.fd)
            if proof is not None:
                self._proofs.forget(proof)
            path = os.path.join(os.path.dirname(place.path), aside)
            text = "'%s' was not the right one, and is '%s' now"
            logger.warning(text, shown(place.path), shown(path))

        return self._take_away(place, status, "reader", but, finish)

    def _take_away(
        self,
        place: Slot,
        status: os.stat_result,
        kind: Kind,
        but: Lease | None,
        finish: Callable[[str], None],
    ) -> bool:
        key = key_of(place.name)
        for _ in range(_ATTEMPTS):
            if self._leases.holders(key, kind, but):
                return False
            with self._leases.files.removal(key) as directory:
                if self._leases.holders(key, kind, but):
                    return False
                taken = os.path.join(directory, place.base)
                # A process that finds what a killed one left may be faster, and do the rest.
                with contextlib.suppress(FileNotFoundError):
                    if _is(place.status(), status) and _move(place, taken):
                        if _is(os.lstat(taken), status):
                            finish(taken)
                            return True
                        if not files.move_new(taken, place.base, dir_fd=place.fd):
                            files.move(taken, files.aside_name(place.base), target_fd=place.fd)
            if not _is(place.status(), status):
                return False
        return False

    def finish_left(self) -> None:
        """Do what is left of removals whose process was killed."""
        for entry in self._leases.files.listed():
            if entry.kind != "removal":
                continue
            directory = self._leases.files.path_of(entry)
            with contextlib.suppress(FileNotFoundError):
                for base in os.listdir(directory):  # which no process can hold any more
                    taken = os.path.join(directory, base)
                    status = os.lstat(taken)
                    proof = self._proofs.of_key(entry.key, status)
                    if proof is not None and proof.placed and stat.S_ISREG(status.st_mode):
                        files.remove(taken)
                        self._proofs.forget(proof)
                        continue
                    aside = os.path.join(self._root, files.aside_name(base))
                    files.move(taken, aside)
                    logger.warning(
                        "Found what a killed process had taken away; it is '%s' now", shown(aside)
                    )
            if is_gone(entry.process):
                files.remove_empty(directory)


def _remove_all(paths: Sequence[str]) -> None:
    for path in paths:
        files.remove(path)


def _is(found: os.stat_result | None, status: os.stat_result) -> bool:
    return found is not None and mark_of(found) == mark_of(status)


def _move(place: Slot, taken: str) -> bool:
    """Return whether it could be taken away: not if it is gone, or its holder was faster."""
    try:
        files.move(place.base, taken, source_fd=place.fd)
    except FileNotFoundError:
        return is_there(taken)  # on NFS what was done may be said to have failed: rename(2)
    return True
