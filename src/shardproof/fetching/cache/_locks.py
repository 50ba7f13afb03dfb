"""Locks, which save work and nothing else: two that fetch one shard at once are both right."""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shardproof._base import files
from shardproof._base.messages import shown, told
from shardproof._base.threads import Stop

if TYPE_CHECKING:
    import filelock

__all__ = ["POLL", "locked"]

POLL = 0.1
"""Seconds between two looks whether a lock is free."""

logger = logging.getLogger("shardproof.fetching")


@contextlib.contextmanager
def locked(path: str, timeout: float, stop: threading.Event | None = None) -> Iterator[bool]:
    """Hold a lock while the context lasts, if it can be had; yield whether it is held.

    It can't where the file system has no locks, where somebody keeps it for too long, or when
    ``stop`` is set. The file goes with the lock; who still waits for it has it all the same.
    """
    import filelock  # noqa: PLC0415 - only what fetches needs it

    lock = filelock.FileLock(path)
    is_held = _acquire(lock, timeout, stop or Stop())
    try:
        yield is_held
    finally:
        if is_held:
            with contextlib.suppress(OSError):
                files.remove(path)
            with contextlib.suppress(OSError):
                lock.release()


def _acquire(lock: "filelock.BaseFileLock", timeout: float, stop: threading.Event) -> bool:
    import filelock  # noqa: PLC0415 - only what fetches needs it

    end = time.monotonic() + timeout
    while not stop.is_set():
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if time.monotonic() >= end:
                logger.info(
                    "'%s' was locked for %.3gs; going on without", shown(lock.lock_file), timeout
                )
                return False
            stop.wait(POLL)
        except (OSError, NotImplementedError, UserWarning) as error:
            logger.debug(
                "'%s' can't be locked; going on without: %s", shown(lock.lock_file), told(error)
            )
            return False
        else:
            return True
    return False
