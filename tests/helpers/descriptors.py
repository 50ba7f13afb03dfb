"""Which descriptors are open, and of what, on Linux and on macOS."""

import fcntl
import os

import pytest

needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc here")

_OF_LINUX = {"copy_file_range", "fdatasync", "posix_fadvise", "posix_fallocate", "splice"}


def needs_call(name: str) -> pytest.MarkDecorator:
    """Skip where `os` has no such function of Linux."""
    is_lacking = name in _OF_LINUX and not hasattr(os, name)
    return pytest.mark.skipif(is_lacking, reason=f"this system has no os.{name}")


def path_of(fd: int | str) -> str:
    """Return what a descriptor is of; what has no path is told by its type."""
    if not hasattr(fcntl, "F_GETPATH"):
        return os.readlink(f"/proc/self/fd/{fd}")
    try:
        return os.fsdecode(fcntl.fcntl(int(fd), fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    except OSError:
        return f"type {os.fstat(int(fd)).st_mode:o}"
