"""Who a process is, so that another one on the same machine can tell that it is gone.

A number alone does not tell: it is given to another process later, and a container or another
machine has one of the same number. So the kernel's boot, the namespace of numbers and the moment at
which the process began stand beside it (proc(5)). What can't be told is taken for alive.
"""

import os

from shardproof._files import is_alive

__all__ = ["is_gone", "is_here", "this_process"]


def this_process() -> str:
    """Return ``"<boot>/<namespace>/<pid>/<start>"``; or no text where the system doesn't tell."""
    started = _started(os.getpid())
    here = _here()
    return f"{here}/{os.getpid()}/{started}" if here and started else ""


def is_gone(process: str) -> bool:
    """Whether a process surely runs no more: one of this boot and namespace, which is not there."""
    here, _, rest = process.rpartition("/")[0].rpartition("/")
    started = process.rpartition("/")[2]
    if not here or here != _here() or not rest.isdecimal():
        return False
    found = _started(int(rest))
    # A process may be hidden from other users (hidepid in proc(5)), and live.
    return found != started if found is not None else not is_alive(int(rest))


def is_here(process: str) -> bool:
    """Whether a process is, or was, of this boot and namespace, so that it can be looked at."""
    here = process.rpartition("/")[0].rpartition("/")[0]
    return bool(here) and here == _here()


def _here() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a process began, in ticks since boot; no text of a zombie, None if nothing is shown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name, in parentheses, may hold anything: fields are counted from its end.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return "" if fields[0] in b"ZX" else fields[19].decode()
