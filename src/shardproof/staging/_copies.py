"""The files of a staged copy, each brought there by one of any number of processes."""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.liveness import mark_of, stamp_of
from shardproof._base.names import NotRegularError, open_inside
from shardproof._base.opening import mode_of
from shardproof._base.work import Cancelled, Stop
from shardproof.errors import ShardReadError
from shardproof.manifest import PromisedFile
from shardproof.report import Finding, FindingKind
from shardproof.staging._proofs import PROOFS, Proof, Proofs, telling_whole

_LOCKS = ".shardproof-stage.lock"
OURS = {_LOCKS, PROOFS}
"""Files of a copy that are not its source's."""

_FILE = "a regular file"
_CHANGED = "it changed while it was copied: stage it when no process writes to it"
_CHUNK = 2**23
_BUFFER = 2**20

# What sendfile(2) answers where a file system has none.
_NO_SENDFILE = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}

_WAIT_SECONDS = 10.0
_LEAST_SPEED = 20e6  # bytes a second; a lock that is held for longer is not waited for


class BrokenPromiseError(Exception):
    """A file of the source is not what the manifest states; arguments as of `Finding`."""

    def __init__(
        self, kind: FindingKind, path: str, expected: str, found: str, number: int | None = None
    ) -> None:
        self.finding = Finding(kind, Path(path), expected, found, number)
        super().__init__(self.finding)


class StagedFiles:
    """The copies of one shards directory's files, made by any number of processes at once.

    Where it ``hashes``, a copy counts only with a digest of its bytes.
    """

    def __init__(self, source: str, target: str, *, hashes: bool) -> None:
        self.source, self.target = source, target
        self.stop = Stop()  # set when another file fails: it ends what is being copied
        self._hashes = hashes
        self._distrusted: set[str] = set()
        with contextlib.ExitStack() as stack:
            self._source_fd = _opened_directory(source, stack)
            self._target_fd = _opened_directory(target, stack)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with telling_whole(target, _LOCKS):
                self._locks_fd = os.open(_LOCKS, flags, 0o600, dir_fd=self._target_fd)
            stack.callback(os.close, self._locks_fd)
            self._stack = stack.pop_all()
        self._proofs = Proofs(self._target_fd)

    def close(self) -> None:
        """Close every descriptor; no copy may be under way."""
        self._stack.close()

    def source_size(self, name: str) -> int:
        """Return how large a file is at the source; 0 where that can't be told yet.

        Only room and patience are reckoned with it: a copy of the file says why it can't be.
        """
        try:
            return os.stat(name, dir_fd=self._source_fd).st_size
        except OSError:
            return 0

    def promised(self, file: PromisedFile) -> PromisedFile:
        """Return what is known of a copy, which says more than the manifest may."""
        proof = self._proofs.get(file.name)
        if proof is None:
            return file
        size = proof.copy[0] if file.size is None else file.size
        return msgspec.structs.replace(file, size=size, digest=file.digest or proof.digest)

    def is_at(self, path: str) -> bool:
        """Whether the directory of the copy is what is at a path."""
        try:
            return os.path.samestat(os.fstat(self._target_fd), os.lstat(path))
        except FileNotFoundError:
            return False

    def distrust(self, name: str) -> None:
        """Copy a file again, whatever was written down of it."""
        self._distrusted.add(name)

    def is_proven(self, name: str) -> bool:
        """Whether the copy of a file is the one that was proven, of the file that is there."""
        if name in self._distrusted:
            return False
        try:
            source = stamp_of(os.stat(name, dir_fd=self._source_fd))
            copy = mark_of(os.stat(name, dir_fd=self._target_fd, follow_symlinks=False))
        except OSError:  # not proven, then: a copy of the file says why it can't be
            return False
        with telling_whole(self.target, PROOFS):
            return self._proofs.fits(name, source, copy, hashed=self._hashes)

    def bring(self, index: int, file: PromisedFile, *, wait: bool) -> bool:
        """Copy a file, unless it is proven; False where another process is at it.

        Its number ``index`` is the same for every process. With ``wait``, the other one is waited
        for, as long as a copy may take.
        """
        with self._held(index, file.name if wait else None) as is_mine:
            if self.is_proven(file.name):
                return True
            if is_mine or wait:
                self._copy(file)
                return True
        return False

    def drop(self, name: str) -> bool:
        """Remove the copy of a file that the source no longer has; False if none here made it.

        Where the source has one by now, another process may have copied it: that stays.
        """
        with telling_whole(self.source, name):
            if mode_of(name, dir_fd=self._source_fd):
                return True
        try:
            with telling_whole(self.target, name):
                mark = mark_of(os.stat(name, dir_fd=self._target_fd, follow_symlinks=False))
        except FileNotFoundError:
            return True
        with telling_whole(self.target, PROOFS):
            is_ours = self._proofs.knows(name, mark)
        if not is_ours:
            return False
        path = os.path.join(self.target, name)
        files.remove_if(path, lambda status: mark_of(status) == mark)
        return True

    @contextlib.contextmanager
    def _held(self, index: int, awaited: str | None) -> Iterator[bool]:
        """Hold a file's lock, a byte for each (fcntl(2)): it saves work, nothing rests on it."""
        end = 0.0
        if awaited is not None:
            end = time.monotonic() + _WAIT_SECONDS + self.source_size(awaited) / _LEAST_SPEED
        while not (is_mine := self._try_lock(index)) and time.monotonic() < end:
            if self.stop.wait(0.02):
                raise Cancelled
            if awaited is not None and self.is_proven(awaited):
                break
        try:
            yield is_mine
        finally:
            if is_mine:
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._locks_fd, fcntl.LOCK_UN, 1, index)

    def _try_lock(self, index: int) -> bool:
        try:
            fcntl.lockf(self._locks_fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
        except OSError as error:
            return error.errno not in {errno.EACCES, errno.EAGAIN}
        return True

    def _copy(self, file: PromisedFile) -> None:
        """Make the copy, and write down that it is one."""
        path, target = (os.path.join(root, file.name) for root in (self.source, self.target))
        try:
            with telling_whole(self.source, file.name):
                fd = open_inside(file.name, root=self.source, dir_fd=self._source_fd)
        except FileNotFoundError as error:
            missing = FindingKind.MISSING
            raise BrokenPromiseError(missing, path, _FILE, "nothing", error.errno) from error
        except NotRegularError as error:
            raise BrokenPromiseError(FindingKind.NOT_REGULAR, path, _FILE, error.found) from error
        try:
            before = os.fstat(fd)
            with files.being_written(target, sync=False) as copy:
                try:
                    digest = self._transfer(fd, copy, before.st_size, file)
                except OSError as error:
                    # Of a call that has but descriptors: let it name what was copied where.
                    if error.errno is not None and error.filename is None:
                        error.filename, error.filename2 = path, target
                    raise
                mark = mark_of(os.fstat(copy))
                after = os.fstat(fd)
                if stamp_of(after) != stamp_of(before) or mark[0] != before.st_size:
                    raise ShardReadError(_CHANGED, path=path)
                if file.size not in {None, before.st_size}:
                    wanted, found = f"{file.size} bytes", f"{before.st_size} bytes"
                    raise BrokenPromiseError(FindingKind.SIZE, path, wanted, found)
                if file.digest is not None and digest != str(_digest.parse(file.digest)):
                    raise BrokenPromiseError(FindingKind.DIGEST, path, file.digest, str(digest))
                # Whatever call this is killed at, a copy that has its name is known to be one.
                with telling_whole(self.target, PROOFS):
                    self._proofs.add(Proof(file.name, stamp_of(before), mark, digest))
        finally:
            os.close(fd)
        self._distrusted.discard(file.name)

    def _transfer(self, source: int, copy: int, size: int, file: PromisedFile) -> str | None:
        """Copy so many bytes, and return their digest where one is wanted."""
        wanted = file.digest or ("sha256:" if self._hashes else None)
        if wanted is None and self._send(source, copy, size):
            return None
        algorithm = (wanted or "sha256:").partition(":")[0]
        digest = _digest.begin(algorithm, size, threads=1)  # since other files are copied meanwhile
        buffer = memoryview(bytearray(min(_BUFFER, size)))
        at = 0
        while at < size and (n := os.preadv(source, [buffer[: size - at]], at)):
            if self.stop.is_set():
                raise Cancelled
            digest.update(buffer[max(0, file.digest_from - at) : n])
            _write_all(copy, buffer[:n])
            at += n
        return f"{algorithm}:{digest.hexdigest()}"

    def _send(self, source: int, copy: int, size: int) -> bool:
        """Let the kernel copy; False where it can't."""
        at = 0
        while at < size:
            if self.stop.is_set():
                raise Cancelled
            try:
                n = os.sendfile(copy, source, at, min(_CHUNK, size - at))
            except OSError as error:
                if at or error.errno not in _NO_SENDFILE:
                    raise
                return False
            if not n:
                break  # it became shorter, which its size tells
            at += n
        return True


def _opened_directory(path: str, stack: contextlib.ExitStack) -> int:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    stack.callback(os.close, fd)
    return fd


def _write_all(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]
