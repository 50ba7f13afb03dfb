"""Read a shard, and prove it in the same pass over its bytes."""

from collections.abc import Iterator, Mapping
from typing import Any

from shardproof._base import digest
from shardproof._base.messages import quoted, told
from shardproof._base.work import go_on
from shardproof.checkpoint.format._layout import header_size
from shardproof.checkpoint.format._metadata import ShardEntry, TensorEntry
from shardproof.checkpoint.storage._open_shard import read_into
from shardproof.checkpoint.storage._storage import StoredFile
from shardproof.errors import CheckpointError

__all__ = [
    "Reading",
    "algorithm_of",
    "checksum_found",
    "prove_shard",
    "prove_tensor",
    "read_shard",
    "read_tensor",
    "refuse_other",
]

_PIECE_BYTES = 2**20  # what the cache of a processor holds between reading and hashing
_PARALLEL_BYTES = 2**24  # for digests that use several processors
_UNPROVEN_BYTES = 2**30


class Reading:
    """One pass over a file, with the digest of what was read until now.

    Args:
        file: From `open_shard`.
        algorithm: Of the digest; None for none.
        digest_threads: How many the digest may use; by default one for each processor.
    """

    def __init__(
        self,
        file: StoredFile,
        algorithm: str | None,
        digest_threads: int | None = None,
    ) -> None:
        self._file, self._algorithm = file, algorithm
        self._digest: Any = None
        try:
            if algorithm is not None:
                self._digest = digest.begin(algorithm, 0, threads=digest_threads)
        except ValueError as error:
            raise CheckpointError(f"it can't be proven: {told(error)}", path=file.path) from None
        self._piece_bytes = _piece_bytes(algorithm, digest_threads)

    @property
    def found(self) -> str:
        """The digest, as ``"<algorithm>:<hex>"``."""
        return f"{self._algorithm}:{self._digest.hexdigest()}" if self._digest else ""

    def fill(self, view: memoryview, offset: int) -> None:
        """Read as many bytes as a buffer has.

        Raises:
            Cancelled: The work was told to stop.
            CheckpointError: They can't be read, or the file became shorter.
        """
        at = 0
        while at < len(view):
            go_on()
            n = read_into(self._file, view[at : at + self._piece_bytes], offset + at)
            if self._digest is not None:
                self._digest.update(view[at : at + n])
            at += n

    def pieces(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes between two offsets, in pieces each of which the next one overwrites."""
        buffer = memoryview(bytearray(min(_PIECE_BYTES, max(0, end - start))))
        for at in range(start, end, _PIECE_BYTES):
            piece = buffer[: end - at]
            self.fill(piece, at)
            yield piece

    def skip(self, start: int, end: int) -> None:
        """Read what is not wanted, for the digest."""
        for _ in self.pieces(start, end):
            pass


def _piece_bytes(algorithm: str | None, digest_threads: int | None) -> int:
    if algorithm is None:
        return _UNPROVEN_BYTES
    is_parallel = algorithm in {"blake3", "sha256-tree"} and digest_threads != 1
    return _PARALLEL_BYTES if is_parallel else _PIECE_BYTES


def algorithm_of(file: StoredFile, entry: ShardEntry) -> str:
    """Return the algorithm by which a shard can be proven.

    Raises:
        CheckpointError: By none.
    """
    if not entry.checksum:
        problem = (
            "it states no checksum, so that it can't be proven; MultiShardLoader(level="
            "'complete') takes it as it is"
        )
        raise CheckpointError(problem, path=file.path)
    return entry.checksum.rpartition(":")[0] or "sha256"


def read_shard(
    file: StoredFile,
    entry: ShardEntry,
    views: Mapping[str, memoryview],
    *,
    prove: bool,
    digest_threads: int | None = None,
) -> None:
    """Read tensors of a shard, and prove all of it by its checksum.

    Args:
        file: From `open_shard`.
        entry: The same.
        views: Where the bytes of each tensor go, by name; what is not wanted is not kept.
        prove: Whether to prove it; else only what is wanted is read.
        digest_threads: How many the digest may use; by default one for each processor.

    Raises:
        Cancelled: The work was told to stop.
        CheckpointError: It can't be proven, or became shorter meanwhile.
    """
    algorithm = algorithm_of(file, entry) if prove else None
    reading = Reading(file, algorithm, digest_threads)
    at = header_size(entry.checksum)
    for tensor in entry.tensors:
        end = tensor.offset + tensor.size
        if tensor.name in views:
            if prove:
                reading.skip(at, tensor.offset)
            reading.fill(views[tensor.name], tensor.offset)
        elif prove:
            reading.skip(at, end)
        at = end
    if prove:
        refuse_other(file, entry, reading.found)


def checksum_found(file: StoredFile, entry: ShardEntry) -> str:
    """Compute the checksum of the data of a shard, as the header would state it."""
    reading = Reading(file, algorithm_of(file, entry))
    reading.skip(header_size(entry.checksum), entry.file_size)
    return reading.found.removeprefix("sha256:")


def refuse_other(file: StoredFile, entry: ShardEntry, found: str) -> None:
    """Raise `CheckpointError` unless the data of a shard have the checksum that it states."""
    found = found.removeprefix("sha256:")
    if found != entry.checksum:
        problem = f"expected data with the checksum {entry.checksum}, found {found}; restore it"
        raise CheckpointError(problem, path=file.path)


def prove_shard(file: StoredFile, entry: ShardEntry) -> None:
    """Read a shard to prove it, and keep nothing; raises as `read_shard`."""
    refuse_other(file, entry, checksum_found(file, entry))


def read_tensor(file: StoredFile, tensor: TensorEntry, view: memoryview) -> None:
    """Read one tensor, and prove it by its own digest, which it must have.

    Raises:
        Cancelled: The work was told to stop.
        CheckpointError: It has another digest, or the file became shorter meanwhile.
    """
    reading = Reading(file, str(tensor.digest).partition(":")[0])
    reading.fill(view, tensor.offset)
    _refuse_other_tensor(file, tensor, reading.found)


def prove_tensor(file: StoredFile, tensor: TensorEntry) -> None:
    """Read one tensor to prove it, and keep nothing; raises as `read_tensor`."""
    reading = Reading(file, str(tensor.digest).partition(":")[0])
    reading.skip(tensor.offset, tensor.offset + tensor.size)
    _refuse_other_tensor(file, tensor, reading.found)


def _refuse_other_tensor(file: StoredFile, tensor: TensorEntry, found: str) -> None:
    if found != tensor.digest:
        name = quoted(tensor.name)
        problem = f"tensor {name}: expected {tensor.digest}, found {found}; restore it"
        raise CheckpointError(problem, path=file.path)
