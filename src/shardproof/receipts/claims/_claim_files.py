"""The files of claims, ``claims/shard_NNNNNN.GGGG.json``; the highest generation is the holder."""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator

import msgspec

from shardproof._base import files
from shardproof._base.arguments import checked
from shardproof._base.liveness import is_gone, is_here
from shardproof._base.names import OPEN_FLAGS, file_type, real_root
from shardproof._base.opening import is_link, names_in, refuse_empty
from shardproof.errors import ManifestError
from shardproof.receipts.plan._directories import CLAIMS, read_header, told_of

# Each generation has one name: of two, one would be listed and the other one read.
_NUMBERS = r"shard_([0-9]{6})\.([0-9]{4}|[1-9][0-9]{4,8})\."
_FILE = re.compile(_NUMBERS + "json")
_WORKSPACE = re.compile(_NUMBERS + "[0-9a-f]{32}")
LAST_GENERATION = 999_999_999
_MAX_BYTES = 4096
_ENCODED_BYTES = 2048  # more than any claim has: 128 characters of a plan's name, escaped


class ClaimRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a claim's file says; its ``process`` is for others on its machine, ``owner`` for people.

    Attributes:
        token: Random; no two claims have the same.
        claimed_at: Unix seconds by its clock, for people.
        stale_after: How many seconds it may be silent.
        beat: Counts its signs of life.
    """

    shard_index: int
    plan_hash: str
    token: str
    owner: str = ""
    process: str = ""
    claimed_at: float = 0.0
    stale_after: float = 0.0
    beat: int = 0


class ObservedClaim(msgspec.Struct, frozen=True):
    """A claim on a shard, as its file was found; `claims_in` and `claim_pending` look at them.

    Attributes:
        generation: The higher, the later.
        content: The file's bytes; all that counts to see whether it changes.
        record: What it says; None where that can't be told.
    """

    generation: int
    content: bytes
    record: ClaimRecord | None

    @property
    def owner(self) -> str:
        """User, host and process of its holder, for people."""
        return self.record.owner if self.record else "a worker that can't be told"

    @property
    def is_dead(self) -> bool:
        """Whether its process surely runs no more: it ran on this machine, and is not there.

        A process of another machine or container is never called dead, nor is one that has the
        number of a process that began at another time called alive.
        """
        return self.record is not None and is_gone(self.record.process)

    @property
    def is_here(self) -> bool:
        """Whether its process runs or ran on this machine, so that `is_dead` tells."""
        return self.record is not None and is_here(self.record.process)


class ClaimFiles:
    """The directory of claims in a plan directory, whose real absolute path is ``root``."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.directory = os.path.join(root, CLAIMS)

    def refuse_link(self) -> None:
        """Raise `ManifestError` if the directory is a symbolic link, which could lead anywhere."""
        if is_link(self.directory):
            problem = "expected a directory of claims, found a symbolic link"
            raise ManifestError(problem, path=self.directory)

    def path_of(self, index: int, generation: int) -> str:
        """Return the path of a claim's file."""
        return os.path.join(self.directory, f"shard_{index:06d}.{generation:04d}.json")

    def holder(self, index: int) -> ObservedClaim | None:
        """Return the claim that holds a shard; None where none does."""
        found = self._entries(_FILE, index)
        return self.read(index, found[-1][0]) if found else None

    def read(self, index: int, generation: int) -> ObservedClaim | None:
        """Return one claim; None where it is gone."""
        path = self.path_of(index, generation)
        try:
            fd = os.open(path, OPEN_FLAGS)
        except FileNotFoundError:
            return None
        try:
            with told_of(path):
                mode = os.fstat(fd).st_mode
                if not stat.S_ISREG(mode):
                    problem = f"expected a claim's file, found a {file_type(mode)}; move it away"
                    raise OSError(errno.EINVAL, problem, path)
                content = os.pread(fd, _MAX_BYTES, 0)
                if _decoded(content) is None:  # perhaps it was being rewritten
                    content = os.pread(fd, _MAX_BYTES, 0)
        finally:
            os.close(fd)
        return ObservedClaim(generation, content, _decoded(content))

    def remove_up_to(self, index: int, generation: int) -> None:
        """Remove a shard's claims up to a generation, the highest last, and their directories."""
        for found, path in self._entries(_WORKSPACE, index):
            if found <= generation:
                files.remove_tree(path)
        for found, path in self._entries(_FILE, index):
            if found <= generation:
                files.remove(path)

    def newest(self) -> dict[int, int]:
        """Return the highest generation of each shard that has claims; of one listing."""
        self.refuse_link()
        names = names_in(self.directory)
        return dict(sorted((index, number) for index, number, _ in self._matches(_FILE, names)))

    def _entries(self, pattern: re.Pattern[str], index: int) -> list[tuple[int, str]]:
        """Return generation and path of each that a shard has, lowest first."""
        begin = f"shard_{index:06d}."  # seen in a tenth of the time; there may be many of others
        names = [name for name in names_in(self.directory) if name.startswith(begin)]
        matches = self._matches(pattern, names)
        return sorted(
            (generation, os.path.join(self.directory, name)) for _, generation, name in matches
        )

    def _matches(
        self, pattern: re.Pattern[str], names: Iterable[str]
    ) -> Iterator[tuple[int, int, str]]:
        for name in names:
            if match := pattern.fullmatch(name):
                yield int(match[1]), int(match[2]), name


@checked
def claims_in(plan_dir: str | os.PathLike[str]) -> Iterator[tuple[int, ObservedClaim]]:
    """Yield for each shard that is claimed its number and the claim that holds it.

    Args:
        plan_dir: The directory that holds ``plan.json``.

    Raises:
        ManifestNotFoundError: There is no ``plan.json``.
        ManifestError: It can't be read, or the directory of claims is a link.
        OSError: It could not be looked at (EIO, ESTALE, ...).

    Example:
        >>> import shardproof
        >>> from shardproof import receipts
        >>> with shardproof.ReceiptStore(plan_dir).claim(1) as work:
        ...     work.mark_empty()
        ...     for index, claim in receipts.claims_in(plan_dir):
        ...         print(index, claim.is_dead)
        1 False
    """
    refuse_empty(plan_dir=plan_dir)
    root = real_root(plan_dir)  # now: the current directory may be another one later
    read_header(root)
    return _holders(ClaimFiles(root))


def _holders(claim_files: ClaimFiles) -> Iterator[tuple[int, ObservedClaim]]:
    for index, generation in claim_files.newest().items():
        found = claim_files.read(index, generation) or claim_files.holder(index)
        if found is not None:
            yield index, found


def encode_claim(record: ClaimRecord) -> bytes:
    """Return a claim's text, which is as long at each beat, so that it is rewritten in place."""
    return msgspec.json.encode(record).ljust(_ENCODED_BYTES)


def _decoded(content: bytes) -> ClaimRecord | None:
    try:
        return msgspec.json.decode(content, type=ClaimRecord)
    except (ValueError, RecursionError, msgspec.DecodeError):
        return None
