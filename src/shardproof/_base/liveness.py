"""Which process this is, how it shows that it lives, and how others tell that it is gone.

On one machine the kernel tells. A number alone does not: it is given to another process later, and
a container or another machine has one of the same number. So the kernel's boot, the namespaces of
numbers and of times and the moment at which the process began stand beside it (proc(5)); that
moment is another for a process that asks from another namespace of times (time_namespaces(7)). What
can't be told is taken for alive: so it is where /proc shows the numbers of another namespace, as in
a container that was given its host's.

Between machines only signs of life tell: one process changes a file every few seconds (`Heartbeat`)
and the others measure, each by its own clock, for how long they saw no change (`ObservedSilence`).
The clocks of two machines are never compared.
"""

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from shardproof._base.work import apart

Key = TypeVar("Key")
Sign = TypeVar("Sign")

Mark = tuple[int, int, int]
"""Size, time of last change and inode: what tells a file from others, and from itself changed."""

Stamp = tuple[int, ...]
"""What changes when a file does, or its name."""

SETTLED_SECONDS = 2.0
"""Seconds in which a file may change twice and its time once, on the coarsest file system."""


def this_process() -> str:
    """Return ``"<boot>/<namespaces>/<pid>/<start>"``; or no text where the system doesn't tell."""
    here, started = _here(), _started(os.getpid())
    return f"{here}/{os.getpid()}/{started}" if here and started else ""


def is_gone(process: str) -> bool:
    """Whether a process surely runs no more: one of this boot and these namespaces, not there."""
    here, _, rest = process.rpartition("/")[0].rpartition("/")
    started = process.rpartition("/")[2]
    if not here or here != _here() or not rest.isdecimal():
        return False
    found = _started(int(rest))
    # A process may be hidden from other users (hidepid in proc(5)), and live.
    return found != started if found is not None else not is_alive(int(rest))


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number; one that can't be asked is taken for alive."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def is_here(process: str) -> bool:
    """Whether a process is, or was, of this boot and these namespaces, so that one can look."""
    here = process.rpartition("/")[0].rpartition("/")[0]
    return bool(here) and here == _here()


def tag_of(process: str) -> str:
    """Return a process as part of a file name, ``<16 digits>-<pid>-<start>``; or no text."""
    here, _, rest = process.rpartition("/")[0].rpartition("/")
    return f"{_digits(here)}-{rest}-{process.rpartition('/')[2]}" if here else ""


def process_of(tag: str) -> str:
    """Return the process that a tag is of; no text if it is of another host or namespace."""
    place, pid, started = tag.split("-")
    here = _here()
    return f"{here}/{pid}/{started}" if here and place == _digits(here) else ""


def _digits(here: str) -> str:
    return hashlib.blake2b(f"{os.uname().nodename}/{here}".encode(), digest_size=8).hexdigest()


_known: dict[int, str] = {}
# A child may have its parent's number, in a namespace of its own.
os.register_at_fork(after_in_child=_known.clear)


def _here() -> str:
    """Return the kernel's boot and this process's namespaces, which are known once it has them."""
    pid = os.getpid()
    known = _known.get(pid)
    if known is not None:
        return known
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        numbers = os.stat("/proc/self/ns/pid").st_ino
        # /proc may have the numbers of a namespace around this process's own.
        with open("/proc/self/status", "rb") as file:
            pids = next((line.split()[1:] for line in file if line.startswith(b"NSpid:")), None)
        is_own = os.readlink("/proc/self") == str(pid) if pids is None else len(pids) == 1
        if not is_own:
            return ""
        try:
            times = f"-{os.stat('/proc/self/ns/time').st_ino}"
        except FileNotFoundError:  # the kernel has no namespaces of times
            times = ""
    except OSError:
        return ""
    # Not looked up again: a child that a signal handler forks here has forgotten it.
    known = _known[pid] = f"{boot}/{numbers}{times}"
    return known


def _started(pid: int) -> str | None:
    """Return when a process began, in ticks since boot; no text of a zombie, None if not shown."""
    # One whose first thread has ended is shown as a zombie while others of it hold its files.
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything: fields are counted from its end.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    has_ended = fields[0] in b"ZX" and int(fields[17]) <= 1
    return "" if has_ended else fields[19].decode()


def owner_text() -> str:
    """Return user, host and number of this process, for people."""
    return f"uid {os.geteuid()} on {os.uname().nodename[:200]}, process {os.getpid()}"


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


class ObservedSilence(Generic[Key, Sign]):
    """For how long others were seen to show no new sign of life; it has no lock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[Key, tuple[Sign, float]] = {}

    def seconds(self, key: Key, sign: Sign) -> float:
        """Return for how long one has shown this sign and no other; 0 when it is first seen."""
        now = self._clock()
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
        self._seen = {key: seen for key, seen in self._seen.items() if not is_over(key)}


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what changes when a file is another one, is written to, or gets another name."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def mark_of(status: os.stat_result) -> Mark:
    """Return what changes when a file is another one or is written to, but not with its name."""
    return status.st_size, status.st_mtime_ns, status.st_ino


def settled_stamp_of(status: os.stat_result) -> Stamp | None:
    """Return a file's stamp, or None where it changed so lately that it may change and keep it."""
    return None if time.time() - status.st_mtime < SETTLED_SECONDS else stamp_of(status)
