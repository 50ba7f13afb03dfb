"""Make this Python lack what that of macOS lacks; it is first in PYTHONPATH where tests want that.

It has what macOS offers instead, as far as we use it: the path of a descriptor (F_GETPATH), what
brings bytes to the medium (F_FULLFSYNC), when a process began. How its kernel does that is not
simulated.
"""

import ctypes
import errno
import fcntl
import importlib
import os
import posix
import resource
import select
import signal
import socket
import struct
import sys
import sysconfig
import types

_OF_LINUX = {
    os: "O_PATH O_NOATIME O_TMPFILE O_DIRECT EFD_CLOEXEC MFD_CLOEXEC P_PIDFD SCHED_BATCH "
    "posix_fadvise posix_fallocate copy_file_range splice memfd_create eventfd getxattr setxattr "
    "listxattr removexattr sched_getaffinity sched_setaffinity pidfd_open fdatasync getresuid "
    "getresgid setresuid setresgid getrandom unshare setns",
    fcntl: "F_SETPIPE_SZ F_GETPIPE_SZ F_OFD_SETLK F_OFD_GETLK F_SETLEASE F_NOTIFY F_ADD_SEALS",
    resource: "prlimit RUSAGE_THREAD",
    select: "epoll POLLRDHUP EPOLLRDHUP",
    signal: "pidfd_send_signal sigtimedwait sigwaitinfo SIGRTMIN SIGPWR SIGSTKFLT",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED TCP_USER_TIMEOUT AF_NETLINK",
}
_OF_GLIBC = {
    *("renameat2", "sync_file_range", "capget", "capset", "prctl", "statx", "preadv64", "io_setup"),
    *("io_submit", "io_getevents", "io_destroy", "memfd_create", "copy_file_range", "fallocate"),
}
F_FULLFSYNC, F_GETPATH = 51, 50
PROC = "/mnt/proc" if os.path.isdir("/mnt/proc/self") else "/proc"  # darwin.sh


def _lack() -> None:
    for module, names in _OF_LINUX.items():
        for name in names.split():
            for has in (module, posix) if module is os else (module,):
                if hasattr(has, name):
                    delattr(has, name)


def _lack_of_libc() -> None:
    found = ctypes.CDLL.__getattr__

    def __getattr__(self: ctypes.CDLL, name: str) -> object:  # noqa: N807 - it takes its place
        if name in _OF_GLIBC:
            raise AttributeError(name)
        return _OF_LIBSYSTEM.get(name) or found(self, name)

    ctypes.CDLL.__getattr__ = __getattr__


def _sysctlbyname(name: bytes, text: ctypes.Array, *_: object) -> int:
    assert name == b"kern.bootsessionuuid"
    with open(f"{PROC}/sys/kernel/random/boot_id", "rb") as file:
        text.value = file.read().strip().upper()
    return 0


def _proc_pidinfo(pid: int, flavor: int, *rest: object) -> int:
    _, info, size = rest
    assert (flavor, size) == (3, 136)
    try:
        with open(f"{PROC}/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    is_zombie = fields[0] in b"ZX" and int(fields[17]) <= 1
    status, ticks = 5 if is_zombie else 2, int(fields[19])
    info[:] = struct.pack("4xI112xQQ", status, ticks // 100, ticks % 100 * 10_000)
    return 136


_OF_LIBSYSTEM = {"sysctlbyname": _sysctlbyname, "proc_pidinfo": _proc_pidinfo}


class _OfOpenssl(types.ModuleType):
    """What httpx2 asks for the certificates that the system trusts, which needs its frameworks."""

    def __getattr__(self, name: str) -> object:
        return getattr(importlib.import_module("truststore._openssl"), name)


def _be_called_darwin() -> None:
    sysconfig.get_config_vars()  # found by the platform's name, while it has its own
    here = os.uname()
    there = os.uname_result(("Darwin", here.nodename, "24.5.0", "Darwin Kernel", "arm64"))
    os.uname = posix.uname = lambda: there
    sys.platform = "darwin"
    # What urllib asks there for the proxies of the system: none.
    proxies = sys.modules["_scproxy"] = types.ModuleType("_scproxy")
    proxies._get_proxy_settings = lambda: {"exclude_simple": False, "exceptions": ()}
    proxies._get_proxies = dict
    sys.modules["truststore._macos"] = _OfOpenssl("truststore._macos")
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = os.cpu_count


def _control_files() -> None:
    control, fsync = fcntl.fcntl, os.fsync

    def answer(fd: object, command: int, argument: object = 0) -> object:
        control(fd, fcntl.F_GETFD)  # refuses what is no descriptor
        number = fd if isinstance(fd, int) else fd.fileno()
        if command == F_FULLFSYNC:
            fsync(number)
            return 0
        if command == F_GETPATH:
            return _path_of(number) + bytes(8)
        return control(fd, command, argument)

    fcntl.F_FULLFSYNC, fcntl.F_GETPATH, fcntl.fcntl = F_FULLFSYNC, F_GETPATH, answer


def _path_of(fd: int) -> bytes:
    path = os.readlink(f"{PROC}/self/fd/{fd}".encode())
    if not path.startswith(b"/"):
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # a socket, or a pipe
    return path.removesuffix(b" (deleted)")


_be_called_darwin()
_control_files()
_lack_of_libc()
_lack()
