"""Leases, which say that a process holds a shard, so that no other process removes it.

A holder shows that it lives by changing its file every minute, from one thread. A lease whose
process surely runs no more does not count, and neither does one that was *seen* not to change for
ten minutes by the clock of the process that looks: no two clocks are compared. Its files are
removed, so its holder, if it lives after all, learns of it.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from shardproof._base import files
from shardproof._base.liveness import Heartbeat, Mark, ObservedSilence, is_gone, owner_text
from shardproof._base.messages import quoted, shown, told
from shardproof.fetching.cache._lease_files import Kind, LeaseEntry, LeaseFiles
from shardproof.fetching.cache._places import StateDirs, key_of

HEARTBEAT = 60.0
"""Seconds between two signs of life."""

STALE_AFTER = 600.0
"""Seconds of silence after which a lease does not count any more."""

_ENCODED_BYTES = 512

logger = logging.getLogger("shardproof.fetching")


class LeaseRecord(msgspec.Struct, frozen=True):
    """What is in a lease's file: its owner for people, the bytes it keeps room for, its beats."""

    owner: str = "a process that can't be told"
    reserved: int = 0
    beat: int = 0


class Lease:
    """A hold on one shard: until it is released, no process removes the shard.

    Attributes:
        name: The shard.
        lost: Whether another process took this one for dead: the shard may be removed at any time.
        mark: What told the shard's file from others when its holder last found or placed it.
    """

    def __init__(self, leases: "Leases", name: str, entry: LeaseEntry, record: LeaseRecord) -> None:
        self.name = name
        self.lost = False
        self.mark: Mark | None = None
        self.entry = entry
        self._leases = leases
        self._record = record
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._is_released = False

    @property
    def part(self) -> Path:
        """Where to fetch the shard to: in a directory of the lease's own, which goes with it."""
        directory = self._leases.workspace_of(self.entry)
        os.makedirs(directory, exist_ok=True)
        return Path(directory, os.path.basename(self.name))

    def begin_reading(self) -> None:
        """Keep others from taking the shard away or replacing it; it may be gone already."""
        with self._lock:
            if self._is_released:
                raise ValueError(f"the lease on shard {quoted(self.name)} was released")
            self._leases.files.make_reader(self.entry, _encoded(self._record))
            self.lost = False

    def stop_reading(self) -> None:
        """Let others replace the shard again."""
        self._leases.files.remove_reader(self.entry)

    def reserve(self, n_bytes: int) -> None:
        """Tell others how much room the shard will take."""
        if n_bytes != self._record.reserved:
            self._tell(reserved=n_bytes)

    def beat(self) -> None:
        """Show life; a file that is gone says that the lease is lost."""
        self._tell(beat=self._record.beat + 1)

    def _tell(self, **changes: int) -> None:
        with self._lock:
            if self._is_released or self.lost:
                return
            self._record = msgspec.structs.replace(self._record, **changes)
            self.lost = not self._leases.files.rewrite(self.entry, _encoded(self._record))
        if self.lost:
            logger.warning(
                "The lease on shard '%s' is lost: it was silent for too long. The shard may be "
                "removed while it is read",
                shown(self.name),
            )

    def release(self) -> None:
        """Give the shard back; in a process that was forked from the holder's, do nothing."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self._is_released:
                self._is_released = True
                self._leases.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases of one cache, as one process sees them; the arguments are those of `Cache`."""

    def __init__(
        self,
        dirs: StateDirs,
        heartbeat: float = HEARTBEAT,
        stale_after: float = STALE_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.files = LeaseFiles(dirs.leases)
        self._parts = dirs.parts
        self._heartbeat, self._stale_after = heartbeat, stale_after
        self._mine: dict[str, Lease] = {}
        self._silence: ObservedSilence[str, bytes] = ObservedSilence(clock)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._heart: Heartbeat | None = None
        self._is_closed = False

    def hold(self, name: str) -> Lease:
        """Return a lease: from now on no process removes the shard, if it is there."""
        if self._is_closed or os.getpid() != self._pid:
            raise RuntimeError("a closed cache, or one of another process, holds no shards")
        with self._lock:
            if self._heart is None and not self._is_closed:
                self._heart = Heartbeat(self._show_life, self._heartbeat, "shardproof-leases")
        record = LeaseRecord(owner=owner_text())
        lease = Lease(self, name, self.files.make_lease(key_of(name), _encoded(record)), record)
        with self._lock:
            self._mine[lease.entry.stem] = lease
        return lease

    def forget(self, lease: Lease) -> None:
        """Remove the files of a lease."""
        with self._lock:
            self._mine.pop(lease.entry.stem, None)
        workspace = self.workspace_of(lease.entry)
        if not files.remove_empty(workspace):  # which it mostly is, or not there
            files.remove_tree(workspace)
        self.files.remove_holder(lease.entry)

    def workspace_of(self, entry: LeaseEntry) -> str:
        """Return the path of a holder's own directory."""
        return os.path.join(self._parts, entry.stem)

    def holders(self, key: str | None, kind: Kind, but: Lease | None = None) -> list[LeaseEntry]:
        """Return the holders or readers of a shard, or of all (no ``key``), without ``but``."""
        entries = self.files.listed(key)
        leases = {entry.stem for entry in entries if entry.kind == "lease"}
        mine = None if but is None else but.entry.stem
        found = [
            entry
            for entry in entries
            if entry.kind == kind and entry.stem in leases and entry.stem != mine
        ]
        with self._lock:
            self._silence.forget(
                lambda stem: stem not in leases and (key is None or stem.startswith(key))
            )
        return [entry for entry in found if not self._is_over(entry)]

    def owner_of(self, entry: LeaseEntry) -> str:
        """Return which process a holder is, for people."""
        return self._record_of(entry).owner

    def reserved(self) -> int:
        """Return for how many bytes all holders together keep room."""
        said = (self._record_of(entry).reserved for entry in self.holders(None, "lease"))
        return sum(max(0, n_bytes) for n_bytes in said)  # others may write anything

    def _record_of(self, entry: LeaseEntry) -> LeaseRecord:
        data = self.files.read(entry._replace(kind="lease"))
        try:
            return msgspec.json.decode(data or b"{}", type=LeaseRecord)
        except (ValueError, msgspec.DecodeError, RecursionError):
            return LeaseRecord()

    def _is_over(self, entry: LeaseEntry) -> bool:
        if entry.stem in self._mine:
            return False
        lease = entry._replace(kind="lease")
        content = None if is_gone(entry.process) else self.files.read(lease)
        if content is not None:
            with self._lock:
                if self._silence.seconds(lease.stem, content) < self._stale_after:
                    return False
        logger.debug("A lease no longer counts: %s", shown(entry.stem))
        with contextlib.suppress(PermissionError):  # another user's
            self.files.remove_holder(lease)
        return True

    def sweep(self) -> list[LeaseEntry]:
        """Remove what is left of holders that are gone, and return those that are not."""
        workspaces = os.listdir(self._parts)  # before the leases, which are made before them
        holders = self.holders(None, "lease")
        for stem in set(workspaces) - {entry.stem for entry in holders}:
            files.remove_tree(os.path.join(self._parts, stem))
        return holders

    def _show_life(self) -> bool:
        with self._lock:
            leases = list(self._mine.values())
        for lease in leases:
            try:
                lease.beat()
            except OSError as error:
                # The next one may succeed; if none does, others take this process for dead.
                logger.warning("No sign of life for shard '%s': %s", shown(lease.name), told(error))
        return not self._is_closed  # with no lease, too: the next one is shown by the same thread

    def close(self) -> None:
        """Release all leases; the thread is joined."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._is_closed = True
        with contextlib.ExitStack() as stack:
            if self._heart is not None:
                stack.callback(self._heart.stop)
            for lease in list(self._mine.values()):
                stack.callback(lease.release)


def _encoded(record: LeaseRecord) -> bytes:
    # As many bytes at each beat, so that the file is rewritten in place.
    return msgspec.json.encode(record).ljust(_ENCODED_BYTES)
