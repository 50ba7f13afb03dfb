"""Who a process is, so that another one on the same machine can tell that it is gone.

A number alone does not tell: it is given to another process later, and a container or another
machine has one of the same number. So the kernel's boot, the namespaces of numbers and of times and
the moment at which the process began stand beside it (proc(5)); that moment is another for who asks
from another namespace of times (time_namespaces(7)). What can't be told is taken for alive: so it
is where /proc shows the numbers of another namespace, as in a container that was given its host's.
"""

import hashlib
import os
import socket

__all__ = ["is_alive", "is_gone", "is_here", "process_of", "tag_of", "this_process"]


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
    """Return a process as part of a file name: ``<16 hexadecimal digits>-<pid>-<start>``.

    The digits are those of its host, boot and namespaces. Of one that can't be told there is no
    text.
    """
    here, _, rest = process.rpartition("/")[0].rpartition("/")
    return f"{_digits(here)}-{rest}-{process.rpartition('/')[2]}" if here else ""


def process_of(tag: str) -> str:
    """Return the process that a tag is of; no text if it is of another host or namespace."""
    place, pid, started = tag.split("-")
    here = _here()
    return f"{here}/{pid}/{started}" if here and place == _digits(here) else ""


def _digits(here: str) -> str:
    return hashlib.blake2b(f"{socket.gethostname()}/{here}".encode(), digest_size=8).hexdigest()


_known: dict[int, str] = {}
# A child may have its parent's number, in a namespace of its own.
os.register_at_fork(after_in_child=_known.clear)


def _here() -> str:
    """The kernel's boot and this process's namespaces; asked again only where it wasn't told."""
    pid = os.getpid()
    if pid not in _known and (here := _asked()):
        _known[pid] = here
    return _known.get(pid, "")


def _asked() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        numbers = os.stat("/proc/self/ns/pid").st_ino
        return f"{boot}/{numbers}{_times()}" if _counts_as_we_do() else ""
    except OSError:
        return ""


def _times() -> str:
    """Return the namespace of times as text; none where the kernel has no such namespaces."""
    try:
        return f"-{os.stat('/proc/self/ns/time').st_ino}"
    except FileNotFoundError:
        return ""


def _counts_as_we_do() -> bool:
    """Whether /proc has the numbers of this process's own namespace, and not of one around it."""
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):
                return len(line.split()) == 2
    return os.readlink("/proc/self") == str(os.getpid())


def _started(pid: int) -> str | None:
    """When a process began, in ticks since boot; no text of a zombie, None if nothing is shown.

    One whose first thread has ended is shown as a zombie while others of it still hold its files.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything: fields are counted from its end.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    has_ended = fields[0] in b"ZX" and int(fields[17]) <= 1
    return "" if has_ended else fields[19].decode()
