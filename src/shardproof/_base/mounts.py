"""On which file system a path is."""

import contextlib

from shardproof._base.opening import real_path

LOCAL = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "unknown", "xfs", "zfs"}
"""Kinds of file systems that no other machine writes to."""


def mount_of(path: str) -> tuple[str, str, str]:
    """Return the kind of a path's file system, where it is mounted, and how, as Linux tells it."""
    found, longest = ("unknown", "unknown", "unknown"), 0
    real = f"{real_path(path)}/".replace("\\", r"\134").replace(" ", r"\040")
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", errors="replace") as mounts:
        for mount in mounts:  # proc(5); of those in one place, the last one counts
            before, _, after = (part.split() for part in mount.partition(" - "))
            place, lazy = before[4], ",lazytime" * ("lazytime" in after[2].split(","))
            if len(place) >= longest and real.startswith(f"{place.rstrip('/')}/"):
                found, longest = (after[0], place, before[5] + lazy), len(place)
    return found


def machine_of(path: str) -> str:
    """Return the boot of this machine if no other one sees a path; no text if another one may."""
    kind, _, options = mount_of(path)
    if kind in LOCAL - {"unknown"} and "ro" not in options.split(","):  # as of a cloud's disks
        with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as boot:
            return boot.read().strip()
    return ""
