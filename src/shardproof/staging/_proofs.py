"""The record of what was proven of a staged copy: a line a file, in ``.shardproof-stage.jsonl``.

A line says what the source's file was like, and what the copy is like. A copy whose line still fits
is not made again. A line that is cut, or lost, or older than the machine's last start, or of
another writer, only costs a copy: so neither lines nor copies are synced to the disk.
"""

import contextlib
import os
import secrets
import threading
from collections.abc import Iterator

import msgspec

from shardproof._base import digest as _digest
from shardproof._base.liveness import Stamp, this_process
from shardproof._base.names import OPEN_FLAGS

PROOFS = ".shardproof-stage.jsonl"
_MAX_BYTES = 2**28
_MAX_LINE = 2**16


class Proof(msgspec.Struct, frozen=True, gc=False):
    """One file that was copied, whole."""

    name: str
    source: Stamp
    copy: Stamp  # a mark: its ctime changes when it gets its name
    digest: str | None = None  # of the bytes that were copied, where it was computed
    boot: str = ""  # between which two starts of the machine


class Proofs:
    """The lines, which any number of processes add to; ``dir_fd`` is the copy's directory."""

    def __init__(self, dir_fd: int) -> None:
        self._dir_fd = dir_fd
        # Where the boot can't be told, only what this process wrote itself counts.
        self._boot = this_process().partition("/")[0] or secrets.token_hex(16)
        self._proofs: dict[str, Proof] = {}
        self._made: set[tuple[str, Stamp]] = set()
        self._n_read = self._n_seen = 0
        self._lock = threading.Lock()

    def get(self, name: str) -> Proof | None:
        """Return what is known of a copy, as far as was read."""
        return self._proofs.get(name)

    def knows(self, name: str, copy: Stamp) -> bool:
        """Whether a copy is one that was made here, whatever became of its source since."""
        self._read_on()
        return (name, copy) in self._made

    def fits(self, name: str, source: Stamp, copy: Stamp, *, hashed: bool) -> bool:
        """Whether a copy was proven that has not changed since, nor has its source.

        ``source`` and ``copy`` say what the two are like now. With ``hashed``, a digest of the copy
        must be known, too.
        """
        if not self._fits(name, source, copy, hashed):
            self._read_on()
        return self._fits(name, source, copy, hashed)

    def _fits(self, name: str, source: Stamp, copy: Stamp, hashed: bool) -> bool:
        proof = self._proofs.get(name)
        return (
            proof is not None
            and (proof.boot, proof.source, proof.copy) == (self._boot, source, copy)
            and source[0] == copy[0]  # whatever the line says
            and (proof.digest is not None or not hashed)
        )

    def _read_on(self) -> None:
        """Read what was written down since the last time."""
        with self._lock, contextlib.suppress(FileNotFoundError):
            fd = os.open(PROOFS, OPEN_FLAGS, dir_fd=self._dir_fd)
            try:
                size = min(os.fstat(fd).st_size, _MAX_BYTES)
                if size <= self._n_seen:
                    return
                data = os.pread(fd, size - self._n_read, self._n_read)
            finally:
                os.close(fd)
            self._n_seen = size
            whole = data.rpartition(b"\n")[0]  # another process may be writing the rest
            self._n_read += len(whole)
            for line in whole.split(b"\n"):
                if len(line) > _MAX_LINE:
                    continue
                try:
                    proof = msgspec.json.decode(line, type=Proof)
                    if proof.digest is not None:
                        _digest.parse(proof.digest)
                except (ValueError, msgspec.DecodeError, RecursionError):
                    continue  # this package could not have written it
                self._note(proof)

    def add(self, proof: Proof) -> None:
        """Write down that a copy is proven."""
        proof = msgspec.structs.replace(proof, boot=self._boot)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(PROOFS, flags, 0o600, dir_fd=self._dir_fd)
        try:
            # One call, which appends in one piece; a new line first, as another may have been cut.
            os.write(fd, b"\n" + msgspec.json.encode(proof) + b"\n")
        finally:
            os.close(fd)
        self._note(proof)

    def _note(self, proof: Proof) -> None:
        self._proofs[proof.name] = proof
        self._made.add((proof.name, proof.copy))


@contextlib.contextmanager
def telling_whole(directory: str, name: str | None = None) -> Iterator[None]:
    """Name the whole path in an error of a call that has a directory's descriptor and a name.

    By default it is the error's own name that is in the directory.
    """
    try:
        yield
    except OSError as error:
        found = name or error.filename
        if error.errno is not None and found and not os.path.isabs(str(error.filename)):
            error.filename = os.path.join(directory, found)
        raise
