"""Who is at what: holds, by which processes of many machines see each other.

A hold is a small file that says who made it. Its owner changes it every few seconds, and removes it
when it is done. Two kinds differ only in their names: who wants a thing alone gives the file the
one name of that thing, which of several only one can (`files.publish`); of those who share a thing
each has a name of its own.

States: free -> held -> silent -> over -> free.

- Held: the owner, and nobody else, writes to the file, and reads it before: a name that leads to
  another one's file tells it that the hold is lost.
- Over: the process surely runs no more, which only its own machine can tell (`liveness`); or the
  content was *seen* not to change for long enough, by the clock of who looks. No two clocks are
  compared, and no time of a file counts. A hold that is seen for the first time is never silent.
- Anybody may remove a hold that is over, and nobody any other: it loses its name first, is compared
  with what was seen, and gets its name again if its owner has shown life meanwhile. On one machine
  a lock lets only one process at a time do so; nothing else rests on a lock.

What this can't do: an owner that is held up between its last look and what it does then (stopped by
the kernel for minutes, say) does it though its hold is lost. So what it does is whole in itself,
and is judged by other things than holds. Where a removal is killed in the moment in which a hold
that lives has no name, the owner loses it: it has worked for nothing, and nothing else.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from shardproof._base import files
from shardproof._base.liveness import Mark, is_gone, is_here, mark_of, this_process
from shardproof._base.names import OPEN_FLAGS, file_type
from shardproof._base.opening import closing_fd
from shardproof._base.work import apart
from shardproof.errors import UnsyncedError

MAX_SILENCE = 86_400.0
"""Most seconds for which a hold may be silent, whatever its owner says."""

_UNWRITTEN_SECONDS = 5.0  # an owner that is held up longer makes its hold again
_MAX_BYTES = 4096
_ENCODED_BYTES = 2048  # more than any record has, so that each beat writes as many

Key = TypeVar("Key")
Sign = TypeVar("Sign")


class HoldRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a hold's file says; ``process`` is for others on its machine, ``owner`` for people."""

    token: str  # random; no two holds have the same
    owner: str = ""
    process: str = ""
    since: float = 0.0  # in Unix seconds by its owner's clock, for people
    stale_after: float = 0.0  # seconds for which it may be silent
    beat: int = 0  # counts its signs of life
    note: dict[str, int | str] = {}  # of the room that uses it


class ObservedHold(msgspec.Struct, frozen=True):
    """A hold as its file was found.

    Attributes:
        path: Of the file.
        content: Its bytes; all that counts to see whether it changes.
        record: What it says; None where that can't be told.
        mark: What tells the file from others.
    """

    path: str
    content: bytes
    record: HoldRecord | None
    mark: Mark

    @property
    def owner(self) -> str:
        """User, host and process of its owner, for people."""
        return self.record.owner if self.record else "an unknown process"

    @property
    def is_dead(self) -> bool:
        """Whether its process surely runs no more: it ran on this machine, and is not there.

        A process of another machine or container is never called dead, nor is one that has the
        number of a process that began at another time called alive.
        """
        return self.record is not None and is_gone(self.record.process)

    @property
    def is_here(self) -> bool:
        """Whether its process runs or ran on this machine, so that `is_dead` tells."""
        return self.record is not None and is_here(self.record.process)

    def remove(self) -> bool:
        """Remove the file, if it is as it was found, and say whether it was."""
        # Of several processes of one machine that are at it, one goes on. Else one that was held up
        # would take the name of the next hold away for a moment, in which a third could have it.
        try:
            fd = os.open(self.path, OPEN_FLAGS)
        except FileNotFoundError:
            return False
        with open(fd, "rb", buffering=0):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError:  # there are no locks: who has lost the hold finds that out later
                pass
            return _removed(self)


def _removed(found: ObservedHold) -> bool:
    return files.remove_if(found.path, lambda status: mark_of(status) == found.mark)


def observe(path: str) -> ObservedHold | None:
    """Return the hold of a path; None where there is none. What is no file is an `OSError`."""
    try:
        fd = os.open(path, OPEN_FLAGS)
    except FileNotFoundError:
        return None
    with closing_fd(fd), files.telling_where(path):
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            found = file_type(status.st_mode)
            problem = f"expected the file of a hold, found a {found}; move it away"
            raise OSError(errno.EINVAL, problem, path)
        content = os.pread(fd, _MAX_BYTES, 0)
        if _decoded(content) is None:  # perhaps it was being rewritten
            content, status = os.pread(fd, _MAX_BYTES, 0), os.fstat(fd)
    return ObservedHold(path, content, _decoded(content), mark_of(status))


def _decoded(content: bytes) -> HoldRecord | None:
    try:
        return msgspec.json.decode(content, type=HoldRecord)
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None


class Hold:
    """A hold of this process; its file is there from `publish` or `make` to `give_back`."""

    def __init__(self, path: str, *, stale_after: float, **note: int | str) -> None:
        self.path = path
        self.token = secrets.token_hex(16)  # no other hold has it
        self.note = note  # what was said last
        self._record = HoldRecord(
            token=self.token,
            owner=f"uid {os.geteuid()} on {os.uname().nodename[:200]}, process {os.getpid()}",
            process=this_process(),
            since=time.time(),
            stale_after=stale_after,
            note=note,
        )

    def publish(self) -> bool:
        """Make the file, unless another one has the name; say which."""
        try:
            return files.publish(self.path, self._encoded())
        except UnsyncedError:
            return True  # after a power cut, no owner is left

    def make(self, *, is_shared: bool) -> None:
        """Make the file, or put a shared one that was lost there again."""
        # Quickly, and not for good: the reply of a server may be lost (open(2), on O_EXCL). So a
        # name for one alone only saves work: `FileExistsError` if another one has it.
        path = self.path
        if is_shared:  # whole from its first moment on: of who is killed before, there is none
            path = os.path.join(os.path.dirname(path), files.temporary_name())
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_EXCL
        with closing_fd(os.open(path, flags, 0o666)) as fd:
            os.pwrite(fd, self._encoded(), 0)
        if is_shared:
            files.move(path, self.path)

    def show_life(self, **note: int | str) -> bool:
        """Change the file, and what it says; return False where the hold is lost."""
        self.note = {**self.note, **note}
        beat = self._record.beat + 1
        self._record = msgspec.structs.replace(self._record, note=self.note, beat=beat)
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        # Closing it shows the change to other nodes (nfs(5)).
        with files.telling_where(self.path), closing_fd(fd):
            is_mine = self._is_in(os.pread(fd, _MAX_BYTES, 0))
            if is_mine:
                os.pwrite(fd, self._encoded(), 0)
            return is_mine

    def is_of(self, found: ObservedHold | None) -> bool:
        """Whether what was found is this hold."""
        return found is not None and self._is_in(found.content)

    def give_back(self) -> None:
        """Remove the file, if it is this one's."""
        found = observe(self.path)
        if found is not None and self.is_of(found):
            _removed(found)

    def _is_in(self, content: bytes) -> bool:
        record = _decoded(content)
        return record is not None and record.token == self.token

    def _encoded(self) -> bytes:
        return msgspec.json.encode(self._record).ljust(_ENCODED_BYTES)


class ObservedSilence(Generic[Key, Sign]):
    """For how long others were seen to show no new sign of life; threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[Sign, float]] = {}
        self._lock = threading.Lock()

    def seconds(self, key: Key, sign: Sign) -> float:
        """Return for how long one has shown this sign and no other; 0 when it is first seen."""
        now = self._clock()
        with self._lock:
            seen = self._seen.get(key)
            if seen is None or seen[0] != sign:
                self._seen[key] = sign, now
                return 0.0
            return now - seen[1]

    def last(self, key: Key) -> Sign | None:
        """Return the sign that was seen last; None where none was."""
        return self._seen[key][0] if key in self._seen else None

    def forget(self, is_over: Callable[[Key], bool]) -> None:
        """Drop what was seen of each that is over, so that no more is kept than there are."""
        with self._lock:
            self._seen = {key: seen for key, seen in self._seen.items() if not is_over(key)}


class HoldWatch(ObservedSilence[str, ObservedHold]):
    """Which holds of others count, as this process sees them; threads may share it."""

    def __init__(self, stale_after: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._stale_after = stale_after

    def is_over(self, found: ObservedHold) -> bool:
        """Whether its process is gone, or showed no sign of life for as long as was looked."""
        if found.is_dead:
            return True
        allowed = found.record.stale_after if found.record else 0.0
        longest = max(self._stale_after, min(allowed, MAX_SILENCE))
        if not found.content:  # its maker was killed before it could write, or does so in a moment
            longest = min(longest, _UNWRITTEN_SECONDS)
        return self.seconds(found.path, found) >= longest


class Heartbeat:
    """A thread that shows life every few seconds, until ``beat`` says no or it is stopped."""

    def __init__(self, beat: Callable[[], bool], every: float, name: str) -> None:
        self._beat, self._every = beat, every
        # A lock of the interpreter's own, which is given back to end it: the main thread does so.
        self._going = threading.Lock()
        self._going.acquire()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            apart(lambda _: self._thread.start())
        except BaseException:
            self._tell_to_end()
            raise

    def stop(self) -> None:
        """Show no more life, and wait for the thread to end, unless it is this one."""
        self._tell_to_end()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _tell_to_end(self) -> None:
        with contextlib.suppress(RuntimeError):  # it was told before
            self._going.release()

    def _run(self) -> None:
        while not self._going.acquire(timeout=self._every) and self._beat():
            pass
