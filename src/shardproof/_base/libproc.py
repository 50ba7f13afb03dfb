"""What macOS, without a /proc, tells of processes: libproc(3), sysctl(3). Elsewhere nothing."""

import ctypes
import struct

_library = ctypes.CDLL(None)
_BSD_INFO, _ZOMBIES_TOO, _ZOMBIE = 3, 1, 5  # PROC_PIDTBSDINFO of sys/proc_info.h, its arg, SZOMB
_INFO = struct.Struct("4xI112xQQ")  # status; the start in seconds and microseconds


def boot_session() -> str:
    """Return what names the time since the kernel's boot; no text where it does not tell."""
    ask, text = getattr(_library, "sysctlbyname", None), ctypes.create_string_buffer(64)
    size = ctypes.byref(ctypes.c_size_t(64))
    if ask is None or ask(b"kern.bootsessionuuid", text, size, None, ctypes.c_size_t(0)):
        return ""
    return text.value.decode("ascii", "replace")


def started(pid: int) -> str | None:
    """Return when a process began, in microseconds; no text of a zombie, None if not shown."""
    ask, info = getattr(_library, "proc_pidinfo", None), ctypes.create_string_buffer(_INFO.size)
    asked = (pid, _BSD_INFO, ctypes.c_uint64(_ZOMBIES_TOO), info, _INFO.size)
    if ask is None or ask(*asked) != _INFO.size:
        return None
    status, seconds, microseconds = _INFO.unpack(info)
    return "" if status == _ZOMBIE else f"{seconds}{microseconds:06}"
