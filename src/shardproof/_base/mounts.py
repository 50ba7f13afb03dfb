"""On which file system a path is."""

import contextlib
import os

LOCAL = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "unknown", "xfs", "zfs"}
"""Kinds of file systems that no other machine writes to."""


def mount_of(path: str) -> tuple[str, str, str]:
    """Return the kind of a path's file system, where it is mounted, and how, as Linux tells it."""
    device = os.stat(path).st_dev
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", errors="replace") as mounts:
        for mount in mounts:  # proc(5)
            before, _, after = (part.split() for part in mount.partition(" - "))
            if before[2] == f"{os.major(device)}:{os.minor(device)}":
                return after[0], before[4], before[5]
    return "unknown", "unknown", "unknown"
