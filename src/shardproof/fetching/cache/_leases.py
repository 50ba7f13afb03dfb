"""Leases: holds (`_base.holds`) on shards, which no process takes away that another one has.

All are in one directory, and each is there, whole, after one system call::

    <key>.<token>.hold         a process wants the shard; in it stands whether it reads it now
    <key>.<token>.removal/     a process is about to take it away

A holder makes a hold, and then removes the directory of every removal of that shard. A remover
makes such a directory, then looks for holds, and then renames the shard *into* the directory. Each
announces itself before it looks for the other, so at least one of them sees the other one:

- the hold is seen, and the shard stays;
- the directory is seen and is empty: it is removed, and the rename fails for want of a target;
- it is seen and is not empty, so it can't be removed: the shard was gone before its holder had
  looked for it.

So it doesn't matter which of them is killed, or held up for hours between two calls: a rename into
a directory and its removal exclude each other in every file system.
"""

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shardproof._base import files
from shardproof._base.holds import Heartbeat, Hold, HoldWatch, ObservedHold, observe
from shardproof._base.liveness import Mark
from shardproof._base.messages import quoted, shown, told
from shardproof.fetching.cache._places import StateDirs, key_of

HEARTBEAT = 60.0  # seconds between two signs of life
STALE_AFTER = 600.0  # seconds of silence after which a lease does not count any more
_HOLD, _REMOVAL = ".hold", ".removal"
_POLL = 0.1  # seconds between two looks whether another process has fetched a shard

logger = logging.getLogger("shardproof.fetching")


class Lease(contextlib.AbstractContextManager["Lease"]):
    """A hold on one shard: until it is released, no process removes the shard."""

    def __init__(self, leases: "Leases", name: str) -> None:
        self.name = name
        self.lost = False
        self.mark: Mark | None = None
        self.path = leases.new_path(key_of(name), _HOLD)
        self._leases = leases
        self._hold = Hold(self.path, stale_after=STALE_AFTER, reserved=0, reads=0)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._is_released = False

    def make(self) -> None:
        """Say that the shard is wanted, and break off what would take it away."""
        self._hold.make(is_shared=True)
        self._leases.break_off_removals(key_of(self.name))

    @property
    def part(self) -> Path:
        """Where to fetch the shard to: in a directory of the lease's own, which goes with it."""
        directory = self._leases.workspace_of(self.path)
        os.makedirs(directory, exist_ok=True)
        return Path(directory, os.path.basename(self.name))

    def begin_reading(self) -> None:
        """Keep others from taking the shard away or replacing it; it may be gone already."""
        with self._lock:
            if self._is_released:
                raise ValueError(f"the lease on shard {quoted(self.name)} was released")
            if not self._hold.show_life(reads=1):
                self._hold.make(is_shared=True)  # it is as good as a new one
            self.lost = False
        self._leases.break_off_removals(key_of(self.name))

    def stop_reading(self) -> None:
        """Let others replace the shard again."""
        if self._hold.note["reads"]:
            self.beat(reads=0)

    def reserve(self, n_bytes: int) -> None:
        """Tell others how much room the shard will take."""
        if n_bytes != self._hold.note["reserved"]:
            self.beat(reserved=n_bytes)

    def beat(self, **note: int) -> None:
        """Show life, and what has changed; a file that is gone says that the lease is lost."""
        with self._lock:
            if self._is_released or self.lost:
                return
            self.lost = not self._hold.show_life(**note)
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

    def __exit__(self, *_: object) -> None:
        self.release()


class Leases:
    """The leases of one cache, as one process sees them; times are in seconds."""

    def __init__(self, dirs: StateDirs, clock: Callable[[], float] = time.monotonic) -> None:
        self._dirs = dirs
        self._mine: dict[str, Lease] = {}
        self._watch = HoldWatch(STALE_AFTER, clock)
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
                self._heart = Heartbeat(self._show_life, HEARTBEAT, "shardproof-leases")
        lease = Lease(self, name)
        try:
            lease.make()
        except BaseException:
            files.remove(lease.path)
            raise
        with self._lock:
            self._mine[lease.path] = lease
        return lease

    def forget(self, lease: Lease) -> None:
        """Remove the files of a lease."""
        with self._lock:
            self._mine.pop(lease.path, None)
        workspace = self.workspace_of(lease.path)
        if not files.remove_empty(workspace):  # which it mostly is, or not there
            files.remove_tree(workspace)
        files.remove(lease.path)

    def new_path(self, key: str, ending: str) -> str:
        """Return the path of a new hold or removal."""
        return os.path.join(self._dirs.leases, f"{key}.{secrets.token_hex(8)}{ending}")

    def workspace_of(self, path: str) -> str:
        """Return the path of the directory that goes with a hold."""
        return os.path.join(self._dirs.parts, os.path.basename(path).removesuffix(_HOLD))

    def _listed(self, key: str | None, ending: str) -> list[str]:
        begin = "" if key is None else f"{key}."
        return [
            os.path.join(self._dirs.leases, name)
            for name in os.listdir(self._dirs.leases)
            if name.startswith(begin) and name.endswith(ending)
        ]

    def holders(
        self, key: str | None, but: Lease | None = None, *, readers: bool = False
    ) -> list[ObservedHold]:
        """Return the holds on a shard, or those of its readers; what is over is removed."""
        paths = set(self._listed(key, _HOLD))
        begin = os.path.join(self._dirs.leases, key or "")
        self._watch.forget(lambda path: path.startswith(begin) and path not in paths)
        paths -= {but.path} if but else set()
        found = [hold for hold in map(observe, sorted(paths)) if hold and not self._is_over(hold)]
        # Whether one reads its shard now; of one that can't be told that is assumed.
        return [h for h in found if not readers or not h.record or h.record.note.get("reads", 1)]

    def _is_over(self, found: ObservedHold) -> bool:
        if found.path in self._mine or not self._watch.is_over(found):
            return False
        logger.debug("A lease no longer counts: %s", shown(found.path))
        with contextlib.suppress(PermissionError):  # another user's
            return found.remove() or observe(found.path) is None
        return True

    def reserved(self) -> int:
        """Return for how many bytes all holders together keep room."""
        notes = [found.record.note for found in self.holders(None) if found.record]
        said = [note.get("reserved") for note in notes]  # others may write anything
        return sum(max(0, n_bytes) for n_bytes in said if isinstance(n_bytes, int))

    @contextlib.contextmanager
    def removal(self, key: str) -> Iterator[str]:
        """Announce that a shard is taken away, while the context lasts; yield the directory."""
        path = self.new_path(key, _REMOVAL)
        os.mkdir(path)
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):  # what is left hinders no holder, and is swept
                files.remove_empty(path)

    def removals(self) -> Iterator[tuple[str, str]]:
        """Yield the key and the directory of each removal that is under way, or was killed."""
        for path in self._listed(None, _REMOVAL):
            yield os.path.basename(path).partition(".")[0], path

    def break_off_removals(self, key: str) -> None:
        """Make the removals of a shard fail that have not taken it yet."""
        for path in self._listed(key, _REMOVAL):
            files.remove_empty(path)

    @contextlib.contextmanager
    def downloading(self, name: str, timeout: float, stop: threading.Event) -> Iterator[bool]:
        """Keep others from fetching the same shard, to save work; yield whether they are."""
        path = os.path.join(self._dirs.locks, f"{key_of(name)}{_HOLD}")
        hold = Hold(path, stale_after=timeout)
        end, is_held = time.monotonic() + timeout, False
        try:
            while not (is_held := self._made_alone(hold)) and not stop.is_set():
                if time.monotonic() >= end:
                    logger.info("Waited %.3gs for who fetches '%s'", timeout, shown(name))
                    break
                stop.wait(_POLL)
        except OSError as error:
            logger.debug("'%s' can't be made; going on without: %s", shown(path), told(error))
        try:
            yield is_held
        finally:
            if is_held:
                with contextlib.suppress(OSError):
                    hold.give_back()

    def _made_alone(self, hold: Hold) -> bool:
        with contextlib.suppress(FileExistsError):
            hold.make(is_shared=False)
            return True
        found = observe(hold.path)
        if found is not None and self._watch.is_over(found):
            found.remove()
        return False

    def sweep(self) -> None:
        """Remove what is left of holders that are gone."""
        workspaces = os.listdir(self._dirs.parts)  # before the leases, which are made before them
        held = {os.path.basename(self.workspace_of(found.path)) for found in self.holders(None)}
        for name in set(workspaces) - held:
            files.remove_tree(os.path.join(self._dirs.parts, name))
        for name in os.listdir(self._dirs.locks):
            found = observe(os.path.join(self._dirs.locks, name))
            if found is not None and found.is_dead:
                found.remove()

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
