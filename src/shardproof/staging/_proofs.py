"""The record of what was proven of a staged copy: a line a file, in ``.shardproof-stage.jsonl``.

A line says what the source's file was like, and what the copy is like. A copy whose line still fits
is not made again. A line that is cut, or lost, or older than the machine's last start, or of
another writer, only costs a copy: so neither lines nor copies are synced to the disk.
"""

import contextlib
import os
import secrets

import msgspec

from shardproof._base import digest as _digest
from shardproof._base.files import telling_where
from shardproof._base.liveness import Mark, Stamp, mark_of, stamp_of, this_process
from shardproof._base.names import OPEN_FLAGS
from shardproof._base.opening import found_at

PROOFS = ".shardproof-stage.jsonl"
_MAX_BYTES = 2**28
_MAX_LINE = 2**16
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class Proof(msgspec.Struct, frozen=True, gc=False):
    """One file that was copied, whole."""

    name: str
    source: Stamp
    copy: Mark  # no stamp: its ctime changes when it gets its name
    digest: str | None = None  # of the bytes that were copied, where it was computed
    boot: str = ""  # between which two starts of the machine


class Proofs:
    """What is known of the copies in a directory, by this process and by those before it."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, PROOFS)
        # Where the boot can't be told, only what this process wrote itself counts.
        self._boot = this_process().partition("/")[0] or secrets.token_hex(16)
        self._proofs: dict[str, Proof] = {}
        self._made: set[tuple[str, Mark]] = set()

    def read(self) -> None:
        """Take in what was written down until now."""
        try:
            with open(os.open(self._path, OPEN_FLAGS), "rb") as file:
                lines = file.read(_MAX_BYTES).split(b"\n")
        except FileNotFoundError:
            return
        for line in lines:
            if line and len(line) <= _MAX_LINE:
                # Others are passed over: this package could not have written them.
                with contextlib.suppress(ValueError, msgspec.DecodeError, RecursionError):
                    proof = msgspec.json.decode(line, type=Proof)
                    if proof.digest is not None:
                        _digest.parse(proof.digest)
                    self._note(proof)

    def n_bytes(self) -> int:
        """Return how much was written down, which tells others that copies are made."""
        return getattr(found_at(self._path), "st_size", 0)

    def get(self, name: str) -> Proof | None:
        """Return what is known of a copy."""
        return self._proofs.get(name)

    def are_of(self, name: str, copy: os.stat_result) -> bool:
        """Whether a copy is one that was made here, whatever became of its source since."""
        return (name, mark_of(copy)) in self._made

    def fit(self, name: str, source: os.stat_result, copy: os.stat_result, *, hashed: bool) -> bool:
        """Whether a copy is as it was when proven, and its source, with a digest if ``hashed``."""
        proof = self._proofs.get(name)
        return (
            proof is not None
            and (proof.boot, proof.source) == (self._boot, stamp_of(source))
            and (proof.copy, copy.st_size) == (mark_of(copy), source.st_size)  # whatever it says
            and (proof.digest is not None or not hashed)
        )

    def add(
        self, name: str, source: os.stat_result, copy: os.stat_result, digest: str | None
    ) -> None:
        """Write down that a copy is proven."""
        proof = Proof(name, stamp_of(source), mark_of(copy), digest, self._boot)
        with telling_where(self._path):
            with open(os.open(self._path, _APPEND, 0o600), "ab", buffering=0) as file:
                # In one piece, and a new line first: another one may have been cut.
                file.write(b"\n" + msgspec.json.encode(proof) + b"\n")
            self._note(proof)

    def _note(self, proof: Proof) -> None:
        self._proofs[proof.name] = proof
        self._made.add((proof.name, proof.copy))
