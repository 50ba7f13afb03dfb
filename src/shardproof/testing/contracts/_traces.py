"""What code leaves behind: threads, processes, descriptors, files."""

import contextlib
import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Traces", "left_behind", "snapshot", "traces"]

_PATIENCE = 2.0  # seconds for a thread that was told to end


class Traces(NamedTuple):
    """What this process holds."""

    threads: frozenset[str]
    processes: frozenset[str]
    descriptors: frozenset[str]


def traces() -> Traces:
    """Return what this process holds now.

    Descriptors are those of Linux' ``/proc/self/fd`` (proc(5)).
    """
    threads = {f"thread {thread.name!r} {thread.ident}" for thread in threading.enumerate()}
    return Traces(frozenset(threads), frozenset(_children()), frozenset(_descriptors()))


def _children() -> list[str]:
    found = []
    for task in Path("/proc/self/task").iterdir():
        # A thread may end while it is looked at; what it started is then another's child.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += [f"process {pid}" for pid in (task / "children").read_text().split()]
    return found


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(f"descriptor {name} of {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # the one that listed them
            continue
    return found


def left_behind(before: Traces) -> list[str]:
    """Return what is there now and was not before; what is about to end gets two seconds."""
    end = time.monotonic() + _PATIENCE
    while (found := _new_since(before)) and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    return found


def _new_since(before: Traces) -> list[str]:
    now = traces()
    return [new for old, kind in zip(before, now, strict=True) for new in sorted(kind - old)]


def snapshot(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return type and mode, size, and time of change of everything below a directory."""
    found = {}
    for path in [os.fspath(root), *_below(root)]:
        status = os.lstat(path)
        found[path] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


def _below(directory: str | os.PathLike[str]) -> Iterator[str]:
    with contextlib.suppress(PermissionError), os.scandir(directory) as entries:
        for entry in entries:
            yield entry.path
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
