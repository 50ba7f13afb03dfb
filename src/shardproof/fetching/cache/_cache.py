"""The part of a cache that belongs to one source: shards that are whole, proven and in use.

Nothing is ever written over. Nothing is removed but what this package put there, is as it was then,
and nobody holds; `_lease_files` says why that can be relied on. What else is in the way of a shard
is moved aside, unless it has the shard's bytes.
"""

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from shardproof._base import files
from shardproof._base.liveness import mark_of
from shardproof._base.messages import quoted, shown, told
from shardproof._base.opening import real_path, refuse_empty
from shardproof.errors import FetchError
from shardproof.fetching.cache._leases import HEARTBEAT, STALE_AFTER, Lease, Leases
from shardproof.fetching.cache._places import Slot, key_of, place_of
from shardproof.fetching.cache._proofs import CacheProof, ProofFiles, digests_of, proof_of
from shardproof.fetching.cache._prover import Prover
from shardproof.fetching.cache._removals import Removals
from shardproof.fetching.cache._settings import Cleanup, cleanup_policy
from shardproof.fetching.cache._state import locked, make_state
from shardproof.fetching.sources._source import RemoteFile

__all__ = ["Cache"]

_ATTEMPTS = 20

logger = logging.getLogger("shardproof.fetching")


class Cache:
    """Shards of one source, below one directory, shared by processes and nodes.

    To use a shard: `hold` it, then `find` it; where it isn't there, fetch it to `Lease.part`, and
    `place` it. When it is not needed any more, release the lease and `discard` it.

    Args:
        root: The directory; it is made.
        cleanup: What becomes of shards that nobody needs any more; see `cleanup_policy`.
        heartbeat: Seconds between two signs of life.
        stale_after: Seconds of silence after which a lease of another host does not count.
        clock: What silence is measured by.

    Attributes:
        root: Its real absolute path.
        cleanup: See above.
        kept: A directory for what is on its way and outlives its fetch.

    Raises:
        NotADirectoryError: Something else is where a directory should be, such as a symbolic link.
        OSError: It can't be made.

    Example:
        >>> from shardproof.fetching.sources._source import RemoteFile
        >>> file = RemoteFile("train/0.bin", size=4)
        >>> with Cache(output_dir) as cache, cache.hold(file.name) as lease:
        ...     print(cache.find(file, lease))
        ...     n_bytes = lease.part.write_bytes(b"1234")
        ...     path = cache.place(lease.part, file, lease)
        ...     print(cache.find(file, lease) == path)
        None
        True
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        cleanup: Cleanup = "auto",
        heartbeat: float = HEARTBEAT,
        stale_after: float = STALE_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        refuse_empty(root=root)
        self.cleanup = cleanup_policy(cleanup)
        self.root = real_path(root)
        dirs = make_state(self.root)
        self._locks, self.kept = dirs.locks, dirs.kept
        self._proofs = ProofFiles(dirs.proofs)
        self._leases = Leases(dirs, heartbeat, stale_after, clock)
        self._removals = Removals(self.root, self._proofs, self._leases)
        self._prover = Prover(self._proofs, self._removals)
        self._sweep()

    def _sweep(self) -> None:
        """Remove what processes left that were killed; what fails costs room, no more."""
        try:
            locks = os.listdir(self._locks)  # before the leases: whoever locks a shard holds it
            held = {f"{lease.key}.lock" for lease in self._leases.sweep()}
            for name in set(locks) - held:
                files.remove(os.path.join(self._locks, name))
            files.sweep_leftovers(self._proofs.directory)
            self._removals.finish_left()
        except OSError as error:
            logger.warning(
                "What killed processes left in '%s' stays: %s", shown(self.root), told(error)
            )

    def path_of(self, name: str) -> Path:
        """Return where a shard is or will be.

        Raises:
            ValueError: The name is refused.
            NotADirectoryError: Its directory is something else, such as a symbolic link.
        """
        with place_of(self.root, name):
            return Path(self.root, name)

    def hold(self, name: str) -> Lease:
        """Return a lease: from now on nobody removes the shard, if it is there.

        Raises:
            ValueError: The name is refused.
            OSError: The lease can't be made.
        """
        self.path_of(name)
        return self._leases.hold(name)

    def in_use(self, name: str, but: Lease | None = None) -> list[str]:
        """Return who reads a shard, for people; ``but`` is a lease that isn't meant."""
        readers = self._leases.holders(key_of(name), "reader", but)
        return [self._leases.owner_of(reader) for reader in readers]

    def find(
        self, file: RemoteFile, lease: Lease, stop: threading.Event | None = None
    ) -> Path | None:
        """Return where a shard is, if it is there and proven to be the source's; else None.

        Until the lease is released, nobody takes it away or puts another one there. A file is
        hashed where its digest is known and nobody remembers that it was proven; where ``stop`` is
        set meanwhile, the shard isn't found. One that has another digest is moved aside.

        Raises:
            OSError: It could not be looked at.
        """
        _refuse_other(file, lease)
        with place_of(self.root, file.name) as place:
            for _ in range(_ATTEMPTS):
                proof = self._prover.prove(place, file, lease, stop) if place else None
                if place is None or proof is None:
                    break
                lease.begin_reading()
                status = place.status()
                if status is not None and mark_of(status) == proof.mark:
                    self._proofs.use(proof)
                    return Path(place.path)
        lease.stop_reading()
        return None

    def place(
        self,
        temporary: str | os.PathLike[str],
        file: RemoteFile,
        lease: Lease,
        *,
        digest: str | None = None,
        stop: threading.Event | None = None,
    ) -> Path:
        """Give a fetched file its name in the cache, unless the right one is there by now.

        It is the lease holder's to read then. What is in the way is removed if this package put
        it there. If not, it stays if it has the same bytes, and is moved aside if it has others.

        Args:
            temporary: The file, whole and synced to the disk: the lease's part.
            file: What the source tells of it; the bytes were compared with that.
            lease: A hold on it.
            digest: ``"<algorithm>:<hex>"`` of its bytes, to be remembered.
            stop: Set by another thread, it ends the comparison with what is there.

        Raises:
            FetchError: Another process reads other bytes under that name; or it was stopped.
            OSError: It could not be moved there.
        """
        _refuse_other(file, lease)
        status = os.stat(temporary, follow_symlinks=False)
        proof = proof_of(file, status, digests_of(digest, file.digest), placed=True)
        # What a source tells whose bytes are these, if there is a digest of them.
        same = RemoteFile(proof.name, proof.size, proof.identity, next(iter(proof.digests), None))
        with place_of(self.root, file.name, make=True) as place:
            assert place is not None, "it was made"  # noqa: S101 - for a type checker
            self._proofs.write(proof)
            try:
                self._put(os.fspath(temporary), place, (file, same), lease, stop)
            finally:
                there = place.status()
                if there is None or mark_of(there) != proof.mark:
                    self._proofs.forget(proof)
            lease.reserve(0)
            return Path(place.path)

    def _put(
        self,
        temporary: str,
        place: Slot,
        wanted: Sequence[RemoteFile],
        lease: Lease,
        stop: threading.Event | None,
    ) -> None:
        for _ in range(_ATTEMPTS):
            status = place.status()
            if status is None:
                lease.begin_reading()
                if files.move_new(temporary, place.base, dir_fd=place.fd):
                    return
            elif any(self.find(file, lease, stop) for file in wanted):
                files.remove(temporary)
                return
            elif stop is not None and stop.is_set():
                raise FetchError("it was stopped", path=place.path)
            elif not self._removals.make_way(place, status, lease):
                there = place.status()
                if there is not None and mark_of(there) == mark_of(status):
                    raise self._conflict(place, lease)
        raise self._conflict(place, lease)

    def _conflict(self, place: Slot, lease: Lease) -> FetchError:
        readers = ", ".join(self.in_use(place.name, lease)) or "a process that is gone by now"
        problem = (
            f"'{shown(place.path)}' has other bytes than the source has now, and is read by "
            f"{readers}; wait for its end, or use another cache directory"
        )
        return FetchError(problem, path=place.path)

    def take_over(self, file: RemoteFile, stop: threading.Event, *, trust: bool) -> bool:
        """Record a file that somebody else put there; return whether its digest is proven.

        Args:
            file: What the source tells of it.
            stop: Set by another thread, it ends the hashing.
            trust: Whether to record what nobody states a digest of.

        Raises:
            OtherBytesError: It is not the source's; or that can't be told, and ``trust`` is False.
            OSError: It could not be looked at, or is gone.
        """
        with place_of(self.root, file.name) as place:
            if place is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file.name)
            return self._prover.take_over(place, file, stop, trust=trust)

    def is_unknown(self, name: str) -> bool:
        """Return whether something is there of which nothing was proven.

        Raises:
            OSError: It could not be looked at.
        """
        with place_of(self.root, name) as place:
            status = place.status() if place else None
            return status is not None and self._proofs.read(name, status) is None

    def owns(self, name: str) -> bool:
        """Return whether this package put there what is there; not where that can't be seen."""
        with contextlib.suppress(OSError), place_of(self.root, name) as place:
            proof = self._proof_at(place)
            return proof is not None and proof.placed
        return False

    def distrust(self, name: str) -> None:
        """Forget that what is there was proven: it is no good, though the source has nothing else.

        It goes if this package put it there, whatever the policy, unless somebody reads it. If
        not, it stays, and nothing is known of it.

        Raises:
            OSError: It could not be removed.
        """
        with place_of(self.root, name) as place:
            proof = self._proof_at(place)
            if place is not None and proof is not None:
                if proof.placed:
                    self._removals.remove(place, "reader")
                else:
                    self._proofs.forget(proof)

    def _proof_at(self, place: Slot | None) -> CacheProof | None:
        status = place.status() if place else None
        return self._proofs.read(place.name, status) if place and status else None

    def discard(self, name: str) -> bool:
        """Remove a shard that is not needed, if it is this package's, unchanged, and nobody's.

        Only under ``cleanup="auto"``. What fails is logged: it costs room on the disk, no more.

        Returns:
            Whether it was removed.
        """
        return self.cleanup == "auto" and self._removals.discard(name)

    def discard_others(self, wanted: Collection[str]) -> list[str]:
        """Discard what an earlier run has left, but not these; return the names that are gone."""
        if self.cleanup != "auto":
            return []
        names = sorted({name for _, _, name in self._removals.placed()} - set(wanted))
        proofs = self._proofs.paths()
        return [name for name in names if self._removals.discard(name, proofs)]

    def make_room(self, n_bytes: int, lease: Lease) -> bool:
        """Reserve room for a shard that is to be fetched; the least recently used ones go for it.

        What is reserved counts for other processes too, until the shard is placed or the lease
        released.

        Returns:
            Whether there is room. If not, none is reserved, and nobody is hindered to fetch it.
        """
        if not isinstance(self.cleanup, int):
            return True
        lease.reserve(n_bytes)
        used = self._leases.reserved()
        placed = sorted(self._removals.placed())
        used += sum(size for _, size, _ in placed)
        proofs = self._proofs.paths()
        for _, size, name in placed:
            if used > self.cleanup and self._removals.discard(name, proofs):
                used -= size
        if used > self.cleanup:
            lease.reserve(0)
        return used <= self.cleanup

    def downloading(
        self, name: str, stop: threading.Event | None = None, *, timeout: float = 600.0
    ) -> AbstractContextManager[bool]:
        """Keep others from fetching the same shard meanwhile, where locks work.

        Look again (`find`) when it is held: somebody may have fetched the shard.

        Args:
            name: The shard.
            stop: Set by another thread, it ends the wait.
            timeout: Seconds to wait for another one to be done.

        Returns:
            A context manager; its value is whether there is a lock.
        """
        return locked(os.path.join(self._locks, f"{key_of(name)}.lock"), timeout, stop)

    def close(self) -> None:
        """Release all leases and end the thread; the shards stay."""
        self._leases.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse_other(file: RemoteFile, lease: Lease) -> None:
    if file.name != lease.name:
        raise ValueError(
            f"lease: expected one on {quoted(file.name)}, found one on {quoted(lease.name)}"
        )
