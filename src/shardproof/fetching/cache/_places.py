"""Where a cache keeps its shards and what it knows of them: below its root, and through no link.

Directories are opened one in the other, and a symbolic link among them is refused: else one file
would have two names, of which one is held and the other one removed.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from shardproof._base import files
from shardproof._base.liveness import Mark, mark_of
from shardproof._base.messages import quoted
from shardproof._base.names import OPEN_FLAGS, file_type, refusals
from shardproof._base.opening import found_at

STATE = ".shardproof"  # the directory below a root where the cache keeps what it knows
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW


class Slot(NamedTuple):
    """A shard's place: the path of its file, whose last part is in an open directory."""

    name: str
    path: str
    base: str
    fd: int  # -1 where that directory is not there

    def status(self) -> os.stat_result | None:
        """Return what is there, not what a link leads to; None if nothing is."""
        return found_at(self.base, dir_fd=self.fd) if self.fd >= 0 else None

    def has(self, mark: Mark) -> bool:
        """Return whether a certain file is there."""
        status = self.status()
        return status is not None and mark_of(status) == mark

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
def place_of(root: str, name: str, *, make: bool = False) -> Iterator[Slot]:
    """Yield a shard's place; its directory is there only if it was, or is to be made."""
    refuse_name(name)
    *parents, base = name.split("/")
    fd = -1
    with contextlib.ExitStack() as stack:
        try:
            fd = _open_directory(root, parents, make)
            stack.callback(os.close, fd)
        except FileNotFoundError:
            if make:
                raise
        yield Slot(name, os.path.join(root, name), base, fd)


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
    locks: str  # who fetches what
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
