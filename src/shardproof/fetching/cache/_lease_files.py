"""The files by which holders and removers of a shard see each other.

All are in one directory, and their names tell what counts: each is there, whole, after one system
call::

    <key>.<token>.<process>.lease      a process wants the shard
    <key>.<token>.<process>.reader     ... and reads it now
    <key>.<token>.<process>.removal/   a process is about to take it away

A holder makes a lease, and then removes the directory of every removal of that shard. A remover
makes such a directory, then looks for leases, and then renames the shard *into* the directory.
Each announces itself before it looks for the other, so at least one of them sees the other one:

- the lease is seen, and the shard stays;
- the directory is seen and is empty: it is removed, and the rename fails for want of a target;
- it is seen and is not empty, so it can't be removed: the shard was gone before its holder had
  looked for it.

So it doesn't matter which of them is killed, or held up for hours between two calls, nor which
locks work: a rename into a directory and its removal exclude each other in every file system.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from shardproof._base import files as _files
from shardproof._base.liveness import this_process
from shardproof._base.names import OPEN_FLAGS

Kind = Literal["lease", "reader", "removal"]

_ENTRY = re.compile(r"([0-9a-f]{16})\.([0-9a-f]{16})\.([^.]*)\.(lease|reader|removal)")
_MAX_BYTES = 4096


class LeaseEntry(NamedTuple):
    """One file or directory: a shard's key, a token of lease and reader, its maker, kind."""

    key: str
    token: str
    process: str
    kind: str

    @property
    def stem(self) -> str:
        """What the names of all files of one holder begin with."""
        return f"{self.key}.{self.token}.{self.process.replace('/', ',')}"


class LeaseFiles:
    """The directory with the files of all shards of a cache."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._process = this_process()

    def path_of(self, entry: LeaseEntry) -> str:
        """Return the path of an entry."""
        return os.path.join(self.directory, f"{entry.stem}.{entry.kind}")

    def listed(self, key: str | None = None) -> list[LeaseEntry]:
        """Return what is there, of one shard or of all."""
        matches = map(_ENTRY.fullmatch, os.listdir(self.directory))
        return [
            LeaseEntry(match[1], match[2], match[3].replace(",", "/"), match[4])
            for match in matches
            if match and key in {None, match[1]}
        ]

    def make_lease(self, key: str, data: bytes) -> LeaseEntry:
        """Make the file of a new lease, and break off what would take the shard away."""
        lease = LeaseEntry(key, secrets.token_hex(8), self._process, "lease")
        self._announce(lease, {"lease": data})
        return lease

    def make_reader(self, lease: LeaseEntry, data: bytes) -> None:
        """Record that a lease's holder reads the shard; break off what would take it away."""
        self._announce(lease, {"lease": data, "reader": b""})

    def _announce(self, lease: LeaseEntry, files: Mapping[str, bytes]) -> None:
        # Without O_EXCL, which on NFS may fail after it made the file: the token is no other's.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            for kind, data in files.items():
                fd = os.open(self.path_of(lease._replace(kind=kind)), flags, 0o666)
                try:
                    os.write(fd, data)
                finally:
                    os.close(fd)
            self._break_off_removals(lease.key)
        except BaseException:
            self.remove_holder(lease)
            raise

    def _break_off_removals(self, key: str) -> None:
        for entry in self.listed(key):
            if entry.kind == "removal":
                _files.remove_empty(self.path_of(entry))

    @contextlib.contextmanager
    def removal(self, key: str) -> Iterator[str]:
        """Announce that a shard is taken away, while the context lasts; yield the directory."""
        entry = LeaseEntry(key, secrets.token_hex(8), self._process, "removal")
        path = self.path_of(entry)
        os.mkdir(path)
        try:
            yield path
        finally:
            with contextlib.suppress(OSError):  # what is left hinders no holder, and is swept
                _files.remove_empty(path)

    def read(self, entry: LeaseEntry) -> bytes | None:
        """Return what is in a file; None if it is gone."""
        try:
            fd = os.open(self.path_of(entry), OPEN_FLAGS)
        except FileNotFoundError:
            return None
        try:
            return os.pread(fd, _MAX_BYTES, 0)
        finally:
            os.close(fd)

    def rewrite(self, entry: LeaseEntry, data: bytes) -> bool:
        """Replace what is in a file; return False if the file is gone."""
        try:
            fd = os.open(self.path_of(entry), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            _files.rewrite(fd, data)
        finally:
            os.close(fd)
        return True

    def remove_reader(self, lease: LeaseEntry) -> None:
        """Record that a lease's holder reads the shard no more."""
        _files.remove(self.path_of(lease._replace(kind="reader")))

    def remove_holder(self, lease: LeaseEntry) -> None:
        """Remove the files of one holder: its lease is the last one."""
        self.remove_reader(lease)
        _files.remove(self.path_of(lease._replace(kind="lease")))
