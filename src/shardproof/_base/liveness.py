"""Which process this is, how it shows that it lives, and how others tell that it is gone.

On one machine the kernel tells. A number alone does not: it is given to another process later, and
a container or another machine has one of the same number. So the kernel's boot, the namespaces of
numbers and of times and the moment at which the process began stand beside it (proc(5)); that
moment is another for a process that asks from another namespace of times (time_namespaces(7)). What
can't be told is taken for alive: so it is where /proc shows the numbers of another namespace, as in
a container that was given its host's. macOS has no /proc, and tells as much in another way.

Between machines only signs of life tell: `holds`.
"""

import hashlib
import os

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
    _, pid, started = _parts(process)
    if not is_here(process) or not pid.isdecimal():
        return False
    found = _started(int(pid))
    # A process may be hidden from other users (hidepid in proc(5)), and live.
    return found != started if found is not None else not is_alive(int(pid))


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
    here, *_ = _parts(process)
    return bool(here) and here == _here()


def tag_of(process: str) -> str:
    """Return a process as part of a file name, ``<16 digits>-<pid>-<start>``; or no text."""
    here, pid, started = _parts(process)
    return f"{_digits(here)}-{pid}-{started}" if here else ""


def _parts(process: str) -> list[str]:
    return ["", "", *process.rsplit("/", 2)][-3:]


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
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot = file.read().strip().decode()
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
        from shardproof._base import libproc  # noqa: PLC0415 - it takes ctypes

        boot, numbers, times = libproc.boot_session(), 0, ""
        if not boot:
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
        from shardproof._base import libproc  # noqa: PLC0415 - as above

        return libproc.started(pid)
    has_ended = fields[0] in b"ZX" and int(fields[17]) <= 1
    return "" if has_ended else fields[19].decode()


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what changes when a file is another one, is written to, or gets another name."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def mark_of(status: os.stat_result) -> Mark:
    """Return what changes when a file is another one or is written to, but not with its name."""
    return status.st_size, status.st_mtime_ns, status.st_ino
