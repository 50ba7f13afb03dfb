"""Take a shard away from where it is, if nobody wants it: to remove it, or to move it aside.

It is renamed into the directory of a removal, so that whoever holds it can break that off; see
`_lease_files`. There it is looked at once more: what somebody put in its place a moment before goes
back. Only then it is removed.
"""

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from shardproof._base import files
from shardproof._base.liveness import is_gone
from shardproof._base.messages import shown
from shardproof._base.opening import is_there
from shardproof.fetching.cache._lease_files import Kind
from shardproof.fetching.cache._leases import Lease, Leases
from shardproof.fetching.cache._places import Slot, key_of
from shardproof.fetching.cache._proofs import ProofFiles, mark_of

__all__ = ["Removals"]

_ATTEMPTS = 20

Result = TypeVar("Result")

logger = logging.getLogger("shardproof.fetching")


class Removals:
    """How shards leave a cache.

    Args:
        root: Real absolute path of the cache.
        proofs: What is known of its files.
        leases: Who holds what.
    """

    def __init__(self, root: str, proofs: ProofFiles, leases: Leases) -> None:
        self._root, self._proofs, self._leases = root, proofs, leases

    def remove(
        self,
        place: Slot,
        kind: Kind,
        but: Lease | None = None,
        proofs: Mapping[str, Sequence[str]] | None = None,
    ) -> bool:
        """Remove a shard that this package put there, is as it was, and is in nobody's use.

        Args:
            place: Where it is.
            kind: Whether who holds it is spared, or only who reads it.
            but: A lease that isn't asked.
            proofs: What `ProofFiles.paths` returned before, for those who remove many: those of the
                shard go with it.

        Returns:
            Whether it was removed.
        """
        # Taken before leases are looked at: where nobody holds the shard, nobody is to use these.
        stale: Sequence[str] = ()
        if kind == "lease":
            known = self._proofs.paths() if proofs is None else proofs
            stale = known.get(key_of(place.name), ())
        status = place.status()
        if status is None:
            is_held = not stale or self._leases.holders(key_of(place.name), kind, but)
            if not is_held and place.status() is None:
                self._forget(stale)
            return False
        proof = self._proofs.read(place.name, status)
        if proof is None or not proof.placed:
            return False

        def finish(taken: str) -> bool:
            files.remove(taken)
            self._forget([*stale, self._proofs.path_of(proof)])
            return True

        return self._take_away(place, status, kind, but, finish) or False

    def _forget(self, proofs: Sequence[str]) -> None:
        for path in proofs:
            files.remove(path)

    def move_aside(
        self, place: Slot, status: os.stat_result, but: Lease | None = None
    ) -> str | None:
        """Give what is there a name that no pattern for shards matches, unless it is read.

        Args:
            place: Where it is.
            status: Of what is meant.
            but: A lease that isn't asked.

        Returns:
            Its new path.
        """
        proof = self._proofs.read(place.name, status)

        def finish(taken: str) -> str:
            aside = files.aside_name(place.base)
            files.move(taken, aside, target_fd=place.fd)
            if proof is not None:
                self._proofs.forget(proof)
            path = os.path.join(os.path.dirname(place.path), aside)
            logger.warning(
                "'%s' was not the right one, and is '%s' now", shown(place.path), shown(path)
            )
            return path

        return self._take_away(place, status, "reader", but, finish)

    def _take_away(
        self,
        place: Slot,
        status: os.stat_result,
        kind: Kind,
        but: Lease | None,
        finish: Callable[[str], Result],
    ) -> Result | None:
        key = key_of(place.name)
        for _ in range(_ATTEMPTS):
            if self._leases.holders(key, kind, but):
                return None
            with self._leases.files.removal(key) as directory:
                if self._leases.holders(key, kind, but):
                    return None
                taken = os.path.join(directory, place.base)
                # Who finds what a killed process left may be faster, and do the rest.
                with contextlib.suppress(FileNotFoundError):
                    if _is(place.status(), status) and _move(place, taken):
                        if _is(os.lstat(taken), status):
                            return finish(taken)
                        self._put_back(taken, place)
            if not _is(place.status(), status):
                return None
        return None

    def _put_back(self, taken: str, place: Slot) -> None:
        if not files.move_new(taken, place.base, dir_fd=place.fd):
            files.move(taken, files.aside_name(place.base), target_fd=place.fd)

    def finish_left(self) -> None:
        """Do what is left of removals whose process was killed."""
        for entry in self._leases.files.listed():
            if entry.kind != "removal":
                continue
            directory = self._leases.files.path_of(entry)
            with contextlib.suppress(FileNotFoundError):
                for base in os.listdir(directory):
                    self._finish_left(entry.key, os.path.join(directory, base))
            if is_gone(entry.process):
                files.remove_empty(directory)

    def _finish_left(self, key: str, taken: str) -> None:
        """Nobody holds what is there: it is removed if that is allowed, whoever took it away."""
        status = os.lstat(taken)
        proof = self._proofs.of_key(key, status)
        if proof is not None and proof.placed and stat.S_ISREG(status.st_mode):
            files.remove(taken)
            self._proofs.forget(proof)
            return
        aside = os.path.join(self._root, files.aside_name(os.path.basename(taken)))
        files.move(taken, aside)
        logger.warning("Found what a killed process had taken away; it is '%s' now", shown(aside))


def _is(found: os.stat_result | None, status: os.stat_result) -> bool:
    return found is not None and mark_of(found) == mark_of(status)


def _move(place: Slot, taken: str) -> bool:
    """Whether it could be taken away; not if it is gone, or who holds it was faster."""
    try:
        files.move(place.base, taken, source_fd=place.fd)
    except FileNotFoundError:
        return is_there(taken)  # on NFS what was done may be said to have failed: rename(2)
    return True
