"""The journal of a seal: which file had which digest, and what would have changed with its bytes.

It lies beside the list, as ``.SHA256SUMS.journal``, a line of JSON for each file that was read.
A seal that was killed goes on from it; a quick look passes over files that are as they were.
Whoever may write to the directory may write to it, and to the list: it saves time, and proves as
much as the list does.
"""

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from shardproof._base import digest as _digest
from shardproof._base.liveness import SETTLED_SECONDS, Stamp, stamp_of
from shardproof._base.names import NotRegularError, open_inside, open_root
from shardproof.errors import SealError

__all__ = ["Journal", "SealedProof", "journal_name", "proofs_of"]

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

_MAX_BYTES = 512 * 2**20


class SealedProof(NamedTuple):
    """A digest, and the stamp that the file had while it was read, where that is to tell."""

    digest: str
    stamp: Stamp | None

    def stands_for(self, status: os.stat_result, wanted: str) -> bool:
        """Whether a file is as it was when it was read.

        Args:
            status: What it is now.
            wanted: The digest that it is to have, or the name of the algorithm alone.
        """
        return self.stamp in {None, stamp_of(status)} and wanted in {
            self.digest,
            self.digest.partition(":")[0],
        }


class _ProofLine(msgspec.Struct, array_like=True):
    name: str
    digest: str
    stamp: Stamp


_decode = msgspec.json.Decoder(_ProofLine).decode
_encode = msgspec.json.Encoder().encode


def journal_name(list_name: str) -> str:
    """Return the name of the journal that is kept beside a list."""
    return f".{list_name}.journal"


def proofs_of(root: str, list_name: str) -> Mapping[str, SealedProof]:
    """Return what a journal tells of each file; nothing where there is none, or not one of ours.

    Lines that can't be read are passed over: a kill tears the last one.

    Raises:
        OSError: It could not be read.
    """
    proofs = {}
    for line in _lines(root, journal_name(list_name)):
        with contextlib.suppress(ValueError, RecursionError, msgspec.DecodeError):
            told = _decode(line)
            proofs[told.name] = SealedProof(str(_digest.parse(told.digest)), told.stamp)
    return proofs


def _lines(root: str, name: str) -> Iterator[bytes]:
    dir_fd = open_root(root)
    try:
        fd = open_inside(name, root=root, dir_fd=dir_fd)
    except (FileNotFoundError, PermissionError, NotRegularError):
        return
    finally:
        os.close(dir_fd)
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if status.st_uid in {os.geteuid(), 0} and status.st_size <= _MAX_BYTES:
            yield from file


class Journal:
    """Takes down proofs, a line at once; a ``with`` block closes it."""

    def __init__(self, root: str, list_name: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE
        self.path = os.path.join(root, journal_name(list_name))
        self._fd = os.open(self.path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise SealError("expected a journal, found something else", path=self.path)
            os.write(self._fd, b"\n")  # the last line may be torn
        except BaseException:
            os.close(self._fd)
            raise

    def note(self, name: str, digest: str, status: os.stat_result) -> None:
        """Take down a proof, unless the file has changed so lately that it may do so unseen."""
        if time.time() - max(status.st_mtime, status.st_ctime) >= SETTLED_SECONDS:
            os.write(self._fd, _encode(_ProofLine(name, digest, stamp_of(status))) + b"\n")

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)
