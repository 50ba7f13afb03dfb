"""What a cache keeps beside its shards: directories for what it knows, and locks in one of them.

Locks save work and nothing else: two that fetch one shard at once are both right.
"""

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from shardproof._base import files
from shardproof._base.messages import shown, told
from shardproof._base.names import file_type
from shardproof._base.threads import Stop
from shardproof.fetching.cache._places import STATE, no_directory

__all__ = ["StateDirs", "locked", "make_state"]

_POLL = 0.1  # seconds between two looks whether a lock is free

logger = logging.getLogger("shardproof.fetching")


class StateDirs(NamedTuple):
    """Where a cache keeps what it knows.

    Attributes:
        leases: Who holds what.
        proofs: What was proven.
        parts: What is about to get its place.
        locks: Files to lock, which saves work.
        kept: What is on its way, from where the next fetch goes on.
    """

    leases: str
    proofs: str
    parts: str
    locks: str
    kept: str


def make_state(root: str) -> StateDirs:
    """Make the directories for what a cache knows, and return where they are.

    Raises:
        NotADirectoryError: Something else is there, such as a symbolic link.
        OSError: They can't be made.
    """
    state = os.path.join(root, STATE)
    dirs = StateDirs(*(os.path.join(state, name) for name in StateDirs._fields))
    for path in (state, *dirs):
        files.make_directories(path)
        mode = os.lstat(path).st_mode
        if not stat.S_ISDIR(mode):
            raise no_directory(path, file_type(mode))
    return dirs


@contextlib.contextmanager
def locked(path: str, timeout: float, stop: threading.Event | None = None) -> Iterator[bool]:
    """Hold a lock while the context lasts, if it can be had; yield whether it is held.

    It can't where the file system has no locks, where somebody keeps it for too long, or when
    ``stop`` is set. The file goes with the lock; whoever still waits for it has it all the same.
    """
    import filelock  # noqa: PLC0415 - only what fetches needs it

    lock, stop = filelock.FileLock(path), stop or Stop()
    end, is_held = time.monotonic() + timeout, False
    while not is_held and not stop.is_set():
        try:
            lock.acquire(timeout=0)
            is_held = True
        except filelock.Timeout:
            if time.monotonic() >= end:
                logger.info("'%s' was locked for %.3gs; going on without", shown(path), timeout)
                break
            stop.wait(_POLL)
        except (OSError, NotImplementedError, UserWarning) as error:
            logger.debug("'%s' can't be locked; going on without: %s", shown(path), told(error))
            break
    try:
        yield is_held
    finally:
        if is_held:
            with contextlib.suppress(OSError):
                files.remove(path)
            with contextlib.suppress(OSError):
                lock.release()
