"""Where a cache keeps its shards and what it knows of them: below its root, and through no link.

Directories are opened one in the other, and a symbolic link among them is refused: else one file
would have two names, of which one is held and the other one removed. Locks save work and nothing
else: two that fetch one shard at once are both right.
"""

import contextlib
import errno
import hashlib
import logging
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardproof._base import files
from shardproof._base.messages import quoted, shown, told
from shardproof._base.names import OPEN_FLAGS, file_type, refusals
from shardproof._base.work import Stop

STATE = ".shardproof"
"""The directory below a root where the cache keeps what it knows."""

_POLL = 0.1  # seconds between two looks whether a lock is free
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW

logger = logging.getLogger("shardproof.fetching")


class Slot(NamedTuple):
    """A shard's place: the path of its file, whose last part is in an open directory."""

    name: str
    path: str
    base: str
    fd: int

    def status(self) -> os.stat_result | None:
        """Return what is there, not what a link leads to; None if nothing is."""
        try:
            return os.stat(self.base, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open(self) -> int:
        """Return a descriptor to read a regular file by; a link is not followed."""
        return os.open(self.base, OPEN_FLAGS, dir_fd=self.fd)


def refuse_name(name: str) -> None:
    """Raise ValueError for a name that no path in a cache may be made of."""
    reasons = [refusal.reason for refusal in refusals([name])]
    if any(part.casefold().startswith(STATE) for part in name.split("/")):
        reasons.append(f"names that begin with {quoted(STATE)} are the cache's own")
    if reasons:
        raise ValueError(f"name: {quoted(name)} is refused: {reasons[0]}")


def key_of(name: str) -> str:
    """Return what a shard is called in the cache's own file names."""
    return hashlib.blake2b(name.encode(), digest_size=8).hexdigest()


@contextlib.contextmanager
def place_of(root: str, name: str, *, make: bool = False) -> Iterator[Slot | None]:
    """Yield a shard's place; None where its directory isn't there, and is not to be made."""
    refuse_name(name)
    *parents, base = name.split("/")
    try:
        fd = _open_directory(root, parents, make)
    except FileNotFoundError:
        yield None
        return
    try:
        yield Slot(name, os.path.join(root, name), base, fd)
    finally:
        os.close(fd)


def _open_directory(root: str, parents: Sequence[str], make: bool) -> int:
    if make:
        files.make_directories(root)
    fd, path = os.open(root, _DIRECTORY), root
    for part in parents:
        path = os.path.join(path, part)
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
                    files.sync(fd)
            try:
                inner = os.open(part, _DIRECTORY, dir_fd=fd)
            except OSError as error:
                if error.errno not in {errno.ENOTDIR, errno.ELOOP}:
                    raise
                found = file_type(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode)
                raise _no_directory(path, found) from error
        finally:
            os.close(fd)
        fd = inner
    return fd


def _no_directory(path: str, found: str) -> NotADirectoryError:
    problem = f"expected a directory of the cache, found a {found}; move it away"
    return NotADirectoryError(errno.ENOTDIR, problem, path)


class StateDirs(NamedTuple):
    """Where a cache keeps what it knows."""

    leases: str
    proofs: str
    parts: str  # what is about to get its place
    locks: str
    kept: str  # what is on its way, from where the next fetch goes on


def make_state(root: str) -> StateDirs:
    """Make the directories for what a cache knows, unless a link or a file is there."""
    state = os.path.join(root, STATE)
    dirs = StateDirs(*(os.path.join(state, name) for name in StateDirs._fields))
    for path in (state, *dirs):
        files.make_directories(path)
        mode = os.lstat(path).st_mode
        if not stat.S_ISDIR(mode):
            raise _no_directory(path, file_type(mode))
    return dirs


@contextlib.contextmanager
def locked(path: str, timeout: float, stop: threading.Event | None = None) -> Iterator[bool]:
    """Hold a lock while the context lasts, if it can be had; yield whether it is held."""
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
