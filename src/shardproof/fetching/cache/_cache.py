"""The part of a cache that belongs to one source: shards that are whole, proven and in use.

Nothing is ever written over. Nothing is removed but what this package put there, is as it was then,
and no process holds; `_leases` says why that can be relied on. What else is in the way of a shard
is moved aside, unless it has the shard's bytes.

To use a shard: `hold` it, then `find` it; where it isn't there, fetch it to `Lease.part`, and
`place` it. When it is not needed any more, release the lease and `discard` it.
"""

import contextlib
import logging
import os
import threading
from collections.abc import Collection
from pathlib import Path

from shardproof._base import files
from shardproof._base.liveness import mark_of
from shardproof._base.messages import shown, told
from shardproof._base.opening import real_path, refuse_no_path
from shardproof._base.work import Closing, Stop
from shardproof.errors import FetchError
from shardproof.fetching.cache._leases import Lease, Leases
from shardproof.fetching.cache._places import Slot, key_of, make_state, place_of
from shardproof.fetching.cache._proofs import OtherBytesError, ProofFiles, digests_of, proof_of
from shardproof.fetching.cache._removals import Removals
from shardproof.fetching.cache._settings import Cleanup
from shardproof.fetching.sources._source import RemoteFile

_ATTEMPTS = 20

logger = logging.getLogger("shardproof.fetching")


class Cache(Closing):
    """Shards of one source, below one directory, shared by processes and nodes."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        cleanup: Cleanup = "auto",
        max_cache_bytes: int | None = None,
    ) -> None:
        refuse_no_path(root=root)
        self.cleanup, self.max_cache_bytes = cleanup, max_cache_bytes
        self.root = real_path(root)  # absolute, through no link
        dirs = make_state(self.root)
        self.kept = dirs.kept
        self._proofs = ProofFiles(dirs.proofs)
        self._leases = Leases(dirs)
        self.downloading = self._leases.downloading
        self._removals = Removals(self.root, self._proofs, self._leases)
        # What killed processes left goes; what fails costs room, no more.
        try:
            self._leases.sweep()
            for directory in (dirs.leases, dirs.proofs):
                files.sweep_leftovers(directory)
            self._removals.finish_left()
        except OSError as error:
            text = "What killed processes left in '%s' stays: %s"
            logger.warning(text, shown(self.root), told(error))

    def path_of(self, name: str) -> Path:
        """Return where a shard is or will be; raise for a name or a directory that is refused."""
        with place_of(self.root, name):
            return Path(self.root, name)

    def hold(self, name: str) -> Lease:
        """Return a lease: from now on no process removes the shard, if it is there."""
        self.path_of(name)
        return self._leases.hold(name)

    def in_use(self, name: str, but: Lease | None = None) -> list[str]:
        """Return the readers of a shard, for people; the lease ``but`` is left out."""
        return [hold.owner for hold in self._leases.holders(key_of(name), but, readers=True)]

    def find(
        self, file: RemoteFile, lease: Lease, stop: threading.Event | None = None
    ) -> Path | None:
        """Return where a shard is, if it is there and proven to be the source's; else None."""
        with place_of(self.root, file.name) as place:
            for _ in range(_ATTEMPTS):
                if (status := place.status()) is None:
                    break
                try:
                    proof = self._proofs.prove(place, file, status, stop or Stop())
                except OtherBytesError:
                    self._removals.make_way(place, status, lease)
                    break
                if proof is None:
                    break
                lease.begin_reading()
                if place.has(proof.mark):
                    self._proofs.use(proof)
                    lease.mark = proof.mark
                    return Path(place.path)
        lease.stop_reading()
        return None

    def is_unchanged(self, lease: Lease) -> bool:
        """Return whether a shard is there as it was when its holder last found or placed it."""
        with place_of(self.root, lease.name) as place:
            return lease.mark is not None and place.has(lease.mark)

    def place(
        self,
        temporary: str | os.PathLike[str],
        file: RemoteFile,
        lease: Lease,
        *,
        digest: str | None = None,
        stop: threading.Event | None = None,
    ) -> Path:
        """Give a fetched file its name in the cache, unless the right one is there by now."""
        own = os.stat(temporary, follow_symlinks=False)
        proof = proof_of(file, own, digests_of(digest, file.digest), placed=True)
        # What a source tells whose bytes are these, if there is a digest of them.
        same = RemoteFile(proof.name, proof.size, proof.identity, next(iter(proof.digests), None))
        with place_of(self.root, file.name, make=True) as place:
            self._proofs.write(proof)
            try:
                for _ in range(_ATTEMPTS):
                    status = place.status()
                    if status is None:
                        lease.begin_reading()
                        if files.move_new(os.fspath(temporary), place.base, dir_fd=place.fd):
                            lease.mark = proof.mark
                            break
                    elif any(self.find(each, lease, stop) for each in (file, same)):
                        files.remove(temporary)
                        break
                    elif stop is not None and stop.is_set():
                        raise FetchError("it was stopped", path=place.path)
                    elif not self._removals.make_way(place, status, lease) and place.has(
                        mark_of(status)
                    ):
                        raise self._conflict(place, lease)
                else:
                    raise self._conflict(place, lease)
            finally:
                if not place.has(proof.mark):
                    self._proofs.forget(proof)
            lease.reserve(0)
            return Path(place.path)

    def _conflict(self, place: Slot, lease: Lease) -> FetchError:
        readers = ", ".join(self.in_use(place.name, lease)) or "a process that is gone by now"
        problem = (
            f"'{shown(place.path)}' has other bytes than the source has now, and is read by "
            f"{readers}; wait for its end, or use another cache directory"
        )
        return FetchError(problem, path=place.path)

    def take_over(self, file: RemoteFile, stop: threading.Event, *, trust: bool) -> bool:
        """Record a file that another tool put there; return whether its digest is proven."""
        with place_of(self.root, file.name) as place:
            return self._proofs.take_over(place, file, stop, trust=trust)

    def has(self, name: str) -> bool:
        """Return whether anything is where the shard should be."""
        with place_of(self.root, name) as place:
            return place.status() is not None

    def is_unknown(self, name: str) -> bool:
        """Return whether something is there of which nothing was proven."""
        with place_of(self.root, name) as place:
            return place.status() is not None and self._proofs.of_place(place) is None

    def owns(self, name: str) -> bool:
        """Return whether this package put there what is there; not where that can't be seen."""
        with contextlib.suppress(OSError), place_of(self.root, name) as place:
            proof = self._proofs.of_place(place)
            return proof is not None and proof.placed
        return False

    def distrust(self, name: str) -> None:
        """Forget that what is there was proven: it goes if it is ours, unless it is being read."""
        with place_of(self.root, name) as place:
            proof = self._proofs.of_place(place)
            if proof is not None and proof.placed:
                self._removals.remove(place, readers=True)
            elif proof is not None:
                self._proofs.forget(proof)

    @property
    def _removes_at_once(self) -> bool:
        return self.cleanup == "auto" and self.max_cache_bytes is None

    def discard(self, name: str) -> bool:
        """Remove a shard that is not in use, if it is ours and unchanged; say whether it went."""
        return self._removes_at_once and self._removals.discard(name)

    def discard_others(self, wanted: Collection[str]) -> list[str]:
        """Discard what an earlier run has left, but not these; return the names that are gone."""
        gone: list[str] = []
        for proof in self._proofs.all() if self._removes_at_once else ():
            with contextlib.suppress(OSError):  # what can't be looked at stays
                if not self._removals.has(proof):
                    self._removals.forget_stale(proof)
                elif proof.placed and proof.name not in wanted:
                    gone += [proof.name] if self._removals.discard(proof.name) else []
        return sorted(gone)

    def make_room(self, n_bytes: int, lease: Lease) -> bool:
        """Reserve room for a shard that is to be fetched; say whether there is room."""
        if self.max_cache_bytes is None:
            return True
        lease.reserve(n_bytes)
        # Reservations first: they are given back when what they are for can be seen.
        has_room = self._removals.shrink(self.max_cache_bytes - self._leases.reserved())
        if not has_room:
            lease.reserve(0)
        return has_room

    def close(self) -> None:
        """Release all leases and end the thread; the shards stay."""
        self._leases.close()
