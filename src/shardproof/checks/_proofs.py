"""The journal of a seal: which file had which digest, and what would have changed with its bytes.

It lies beside the list, as ``.SHA256SUMS.journal``, a line of JSON for each file that was read.
A seal that was killed goes on from it; a quick look passes over files that are as they were.
Whoever may write to the directory may write to it, and to the list: it saves time, and proves as
much as the list does.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import msgspec

from shardproof._base import digest as _digest
from shardproof._base import digest_lists
from shardproof._base.liveness import SETTLED_SECONDS, Stamp, stamp_of
from shardproof._base.names import opened
from shardproof._base.opening import closing_fd, file_of
from shardproof.errors import SealError

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

_NOT_OURS = (
    "expected a journal of yours, found a link, another user's file or no regular file: inspect "
    "it, then remove it"
)

_MAX_BYTES = 512 * 2**20


class FileRead(NamedTuple):
    """What a file hashes to, what it was before and after it was read, when, if a journal knew."""

    name: str
    found: _digest.Found
    before: os.stat_result
    after: os.stat_result
    at: float
    is_known: bool


Noter = Callable[[FileRead], None]


class SealedProof(NamedTuple):
    """What a file hashed to, and the stamp that it had while it was read, where that is to tell."""

    found: _digest.Found
    stamp: Stamp | None
    is_whole: bool = False  # whether the checksums that it has in itself are proven, too

    @classmethod
    def of(cls, digests: Iterable[tuple[str, int]]) -> "SealedProof":
        """Return what this very call has proven of a file, each digest with its begin."""
        proven = [(_digest.parse(text), begin) for text, begin in digests]
        return cls({(each.algorithm, begin): each for each, begin in proven}, None)

    def digests_of(
        self,
        status: os.stat_result,
        stated: Iterable[tuple[_digest.Digest, int]],
        asked: Set[tuple[str, int]],
    ) -> _digest.Found | None:
        """Return what a file hashes to, if it is as it was, and that is what is stated of it."""
        is_told = asked <= self.found.keys() and self.stamp in {None, stamp_of(status)}
        is_right = is_told and all(self.found[each[0], begin] == each for each, begin in stated)
        return self.found if asked and is_right else None


class _ProofLine(msgspec.Struct, array_like=True):
    name: str
    digest: str
    stamp: Stamp
    begin: int = 0


_decode = msgspec.json.Decoder(_ProofLine).decode
_encode = msgspec.json.Encoder().encode


def journal_name(list_name: str) -> str:
    """Return the name of the journal that is kept beside a list."""
    return f".{list_name}.journal"


def proofs_of(root: str, *list_names: str) -> Mapping[str, SealedProof]:
    """Return what journals that are ours tell of each file: those of some lists, or of any."""
    proofs: dict[str, SealedProof] = {}
    names = list_names or digest_lists.NAMES.values()
    for line in (line for name in names for line in _lines(root, journal_name(name))):
        with contextlib.suppress(ValueError, RecursionError, msgspec.DecodeError):  # torn by a kill
            told = _decode(line)
            found = _digest.parse(told.digest)
            known = proofs.get(told.name)
            others = known.found if known and known.stamp == told.stamp else {}
            digests = {**others, (found.algorithm, told.begin): found}
            proofs[told.name] = SealedProof(digests, told.stamp)
    return proofs


def _lines(root: str, name: str) -> Iterator[bytes]:
    with opened(name, root) as found:
        if found is not None:
            status = found.status
            if _is_ours(status, {os.geteuid(), 0}) and status.st_size <= _MAX_BYTES:
                with file_of(found, status.st_size) as file:
                    yield from file


def _is_ours(status: os.stat_result, owners: Container[int]) -> bool:
    """Whether a file can be a journal that one of these users made: it has no second name."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid in owners


@contextlib.contextmanager
def journal(root: str, list_name: str, *, dir_fd: int) -> Iterator[Noter]:
    """Yield what takes down proofs of a file, in a journal that is ours, else a `SealError`."""

    def note(read: FileRead) -> None:
        # One that had changed so lately that it might do so unseen is passed over.
        if read.at - max(read.before.st_mtime, read.before.st_ctime) >= SETTLED_SECONDS:
            stamp, found = stamp_of(read.before), read.found.items()
            lines = [_ProofLine(read.name, str(each), stamp, begin) for (_, begin), each in found]
            os.write(fd, b"\n".join([*map(_encode, lines), b""]))

    with closing_fd(_opened(root, journal_name(list_name), dir_fd)) as fd:
        os.write(fd, b"\n")  # the last line may be torn
        yield note


def _opened(root: str, name: str, dir_fd: int) -> int:
    with contextlib.suppress(FileExistsError):  # on some networks a new one is another user's
        return os.open(name, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=dir_fd)
    path = os.path.join(root, name)
    try:
        fd = os.open(name, _FLAGS, dir_fd=dir_fd)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.EISDIR, errno.ENXIO}:
            raise SealError(_NOT_OURS, path=path) from error
        raise
    try:
        if _is_ours(os.fstat(fd), {os.geteuid()}):
            return fd
        raise SealError(_NOT_OURS, path=path)
    except BaseException:
        os.close(fd)
        raise
