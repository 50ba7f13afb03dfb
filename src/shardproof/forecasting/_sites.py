"""What sites go by when they purge: what they publish, the clocks of files, their own lists."""

import ctypes
import errno
import functools
import importlib.resources
import os
import re
import struct
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from shardproof._base.fanout import collected
from shardproof._base.messages import shown
from shardproof._base.mounts import mount_of
from shardproof._base.opening import is_link, is_regular, real_path
from shardproof._base.work import go_on

Clock = Literal["atime", "mtime", "ctime", "birth"]
"""When a file was last read or written, its inode last changed, or made."""

_BIRTH, _LAYOUT = 0x800, struct.Struct("=I76xqI")  # STATX_BTIME; stx_mask and stx_btime of statx(2)
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)

_LONGEST_LINE = 2**16
_PATH = re.compile(rb"(?:^(?:\xef\xbb\xbf)?|[\s=:,]|([\"']))(?=/)")  # a mark, columns, a quote
_NEXT = re.compile(rb"[\s,]")

_NFS = {"nfs": "NFS clients answer stat from a cache that is up to a minute old"}
_WORTH: Mapping[Clock, Mapping[str, str]] = {
    "atime": {
        "noatime": "mounted with noatime: no read from this machine renews atime",
        "relatime": "mounted with relatime: reads renew atime once in 24 hours, or after a write",
        "lazytime": "mounted with lazytime: times reach the disk up to 24 hours later",
        "lustre": "Lustre stores atime when a file is closed, and only if it is a minute newer",
        "nfs": f"an NFS server sees no read from its clients' caches; {_NFS['nfs']}",
        "gpfs": "Storage Scale shows atime on other nodes after close; its -S says how often",
    },
    "mtime": {"": "rsync -a, cp -p and tar keep mtime: a new copy may be old", **_NFS},
    "ctime": {"": "ctime is renewed by chmod, rename and link, too", **_NFS},
    "birth": {"": "birth is that of the inode: what is repaired or copied begins anew"},
}


@functools.cache
def policies() -> Mapping[str, Mapping[str, Any]]:
    """Return what sites publish, by name: days, clocks, source, and when that was read."""
    file = importlib.resources.files(__package__).joinpath("policies.toml")
    return tomllib.loads(file.read_text("utf-8"))


def time_of(clocks: Sequence[Clock], status: os.stat_result, name: str, dir_fd: int) -> float:
    """Return the newest of some clocks of a file, in seconds since 1970."""
    if clocks == ("atime",):  # mostly
        return status.st_atime
    times = [getattr(status, f"st_{clock}") for clock in clocks if clock != "birth"]
    if "birth" in clocks:  # told by stat(2) of macOS, and by Python from 3.15 on
        times.append(getattr(status, "st_birthtime", None) or _birth(name, dir_fd))
    return float(max(times))


def _birth(name: str, dir_fd: int) -> float:
    buffer = ctypes.create_string_buffer(256)
    if _statx and _statx(dir_fd, os.fsencode(name), 0, _BIRTH, buffer):
        raise OSError(number := ctypes.get_errno(), os.strerror(number), name)
    mask, seconds, nanoseconds = _LAYOUT.unpack_from(buffer)
    if not mask & _BIRTH:
        raise OSError(errno.ENOTSUP, "the system tells no time of birth", name)
    return float(seconds + nanoseconds / 1e9)


def worth_of(clocks: Sequence[Clock], root: str) -> Iterator[str]:
    """Yield what clocks are worth where a directory is, in a sentence each."""
    kind, _, options = mount_of(root)
    words = ["", "nfs"] if kind.startswith("nfs") else ["", kind, *options.split(",")]
    return (_WORTH[clock][word] for clock in clocks for word in words if word in _WORTH[clock])


def victims_among(names: Sequence[str], roots: set[str], path: str) -> tuple[set[str], int]:
    """Return which files a list has, by their path or that of a link's target; and its lines."""

    def paths_of(some: Sequence[str]) -> list[set[str]]:
        ways = [{os.path.join(root, name) for root in roots} for name in some]
        return [paths | {real_path(each) for each in paths if is_link(each)} for paths in ways]

    if not is_regular(path):
        raise ValueError(f"victims: expected a regular file, found none at '{shown(path)}'")
    known = collected(paths_of, names)
    wanted, found, n_lines = set[str]().union(*known), set[str](), 0
    with open(path, "rb") as file:
        while line := file.readline(_LONGEST_LINE):
            go_on()
            n_lines += 1
            if b"\0" in line:
                problem = "text with a path a line, found NUL bytes: unpack it, or convert it"
                raise ValueError(f"victims: expected {problem}: '{shown(path)}'")
            # Only text is compared: nothing is looked at where a line leads.
            if match := _PATH.search(line):
                rest = line[match.end() :].strip()
                # Unless it is quoted, a path may have spaces in it, or columns behind it.
                end = rest.partition(match[1])[0] if match[1] else _NEXT.split(rest, 1)[0]
                found |= {*map(os.fsdecode, (rest, end))} & wanted
            while not line.endswith(b"\n") and (line := file.readline(_LONGEST_LINE)):
                go_on()  # longer than any path
    return {name for name, paths in zip(names, known, strict=True) if paths & found}, n_lines
