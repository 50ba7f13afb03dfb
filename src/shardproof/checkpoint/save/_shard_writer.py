"""Write a shard: header, tensors and digests in one pass over the bytes."""

import dataclasses
import os
from collections.abc import Iterable
from typing import Literal

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.messages import quoted
from shardproof._base.work import go_on
from shardproof.checkpoint.format._dtypes import ITEM_SIZES
from shardproof.checkpoint.format._layout import (
    ShardHeader,
    aligned,
    header_size,
    pack_header,
    record_name,
    shard_name,
)
from shardproof.checkpoint.format._metadata import RankRecord, ShardEntry, TensorEntry, seal
from shardproof.checkpoint.save._attempt import Attempt
from shardproof.checkpoint.save._commit import before_it_is_there, being_added
from shardproof.checkpoint.save._inputs import Tensor
from shardproof.checkpoint.storage._reading import small_enough
from shardproof.checkpoint.storage._storage import Location
from shardproof.errors import CheckpointError

__all__ = [
    "BLOCK_BYTES",
    "CHECKSUM_PREFIXES",
    "Algorithm",
    "BlockWriter",
    "SaveOptions",
    "ShardWriter",
    "write_shard",
]

Algorithm = Literal["sha256", "sha256-tree", "blake3"]

CHECKSUM_PREFIXES = {"sha256": "", "sha256-tree": "sha256-tree:", "blake3": "blake3:"}
"""By which a shard's data can be proven, and how the checksum begins."""

BLOCK_BYTES = 2**20

_TENSOR_DIGEST = "xxh3-128"
_PIECE_BYTES = {"sha256": BLOCK_BYTES, "sha256-tree": 2**24, "blake3": 2**24}
_SYNC_BYTES = 2**26


@dataclasses.dataclass(frozen=True, slots=True)
class SaveOptions:
    """How the shards of one attempt are saved; the names are those of `MultiShardSaver`."""

    attempt: Attempt
    algorithm: Algorithm = "sha256"
    sync: bool = True
    step: int | None = None
    overwrite: bool = False


def write_shard(
    location: Location, rank: int, tensors: Iterable[Tensor], options: SaveOptions
) -> str:
    """Write the shard of a rank, and its record; return its path.

    Raises:
        Cancelled: The work was told to stop.
        CheckpointError: A tensor gave other bytes than its shape and type imply; or another attempt
            at this prefix was faster.
        OSError: It could not be written; nothing is under its name that was not there before.
    """
    name, overwrite = shard_name(location.name, rank), options.overwrite
    path = location.beside(name)
    with before_it_is_there():
        location.storage.make_directories(location.directory)
    with being_added(location, name, overwrite=overwrite, sync=options.sync) as fd:
        writer = ShardWriter(fd, path, options.algorithm, sync=options.sync)
        entry = writer.write(rank, name, tensors)
    attempt = options.attempt
    token = attempt.new_token()
    record = RankRecord(
        step=options.step, shard=entry, attempt=attempt.marks, token=token, checksum=""
    )
    # Not synced: one that a power cut tore is refused, and its rank saves again.
    name = record_name(location.name, rank)
    data = small_enough(seal(record), location.beside(name))
    with (
        being_added(location, name, overwrite=overwrite, sync=False) as fd,
        open(fd, "wb", closefd=False) as file,
    ):
        file.write(data)
    attempt.has_left(path, token)
    return path


class ShardWriter:
    """Write one shard into an empty file, and compute the digests of what is written.

    Args:
        fd: Of the file.
        path: How errors name it.
        algorithm: Of the checksum of all data.
        sync: Whether to bring what is written to the disk early; the caller waits for it.
    """

    def __init__(self, fd: int, path: str, algorithm: Algorithm, *, sync: bool = False) -> None:
        self._fd, self._path, self._algorithm = fd, path, algorithm
        self._blocks, self._sync = BlockWriter(fd, path), sync
        self._digest = _digest.begin(algorithm, 0)
        self._at = self._synced = 0

    def write(self, rank: int, name: str, tensors: Iterable[Tensor]) -> ShardEntry:
        """Write the shard of a rank; return its entry of the metadata; raise as `write_shard`."""
        begin = header_size(self._checksum())
        self._blocks.put(memoryview(bytes(begin)))  # the real one is known in the end
        self._at = begin
        entries = tuple(map(self._write_tensor, tensors))
        checksum = self._checksum()
        header = ShardHeader(rank, checksum, len(entries), self._at - begin)
        self._blocks.flush()
        self._blocks.begin_with(pack_header(header))
        return ShardEntry(rank, name, self._at, checksum, entries)

    def _checksum(self) -> str:
        return CHECKSUM_PREFIXES[self._algorithm] + str(self._digest.hexdigest())

    def _write_tensor(self, tensor: Tensor) -> TensorEntry:
        self._put(memoryview(bytes(aligned(self._at) - self._at)))
        offset, size = self._at, tensor.size
        digest = _digest.begin(_TENSOR_DIGEST, size)
        n_bytes = _PIECE_BYTES[self._algorithm]
        for data in tensor.pieces():
            left = memoryview(data)
            while left:  # in pieces that end where blocks do, and that a processor's cache holds
                n = n_bytes - self._at % n_bytes
                piece, left = left[:n], left[n:]
                digest.update(piece)
                self._put(piece)
        if self._at - offset != size:
            problem = (
                f"tensor {quoted(tensor.name)}: expected {size} bytes, by its shape {tensor.shape} "
                f"of {tensor.dtype} ({ITEM_SIZES[tensor.dtype]} bytes each), "
                f"found {self._at - offset}"
            )
            raise CheckpointError(problem, path=self._path)
        text = f"{_TENSOR_DIGEST}:{digest.hexdigest()}"
        return TensorEntry(tensor.name, tensor.dtype, tensor.shape, offset, size, text)

    def _put(self, piece: memoryview) -> None:
        go_on()
        self._digest.update(piece)
        self._blocks.put(piece)
        self._at += len(piece)
        if self._sync and self._at - self._synced >= _SYNC_BYTES:
            files.begin_to_sync(self._fd)
            self._synced = self._at


class BlockWriter:
    """Write a new file from its start on, in blocks that begin at multiples of their size.

    A write that begins within a page of the page cache makes the kernel take small pages for all of
    it: on ext4 such writes ran at a tenth of the speed.

    Args:
        fd: Of the file.
        path: How errors name it.
    """

    def __init__(self, fd: int, path: str) -> None:
        self._fd, self._path = fd, path
        self._held = memoryview(bytearray(BLOCK_BYTES))
        self._n_held = 0

    def put(self, data: memoryview) -> None:
        """Write all that makes whole blocks, and hold the rest."""
        while data:
            n = 0 if self._n_held else len(data) // BLOCK_BYTES * BLOCK_BYTES
            if n:
                self._write(data[:n])
            else:
                n = min(BLOCK_BYTES - self._n_held, len(data))
                self._held[self._n_held : self._n_held + n] = data[:n]
                self._n_held += n
                if self._n_held == BLOCK_BYTES:
                    self.flush()
            data = data[n:]

    def flush(self) -> None:
        """Write what is held; nothing may be put after less than a block."""
        self._write(self._held[: self._n_held])
        self._n_held = 0

    def begin_with(self, header: bytes) -> None:
        """Replace the first bytes of the file."""
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._write(memoryview(header))

    def _write(self, data: memoryview) -> None:
        with files.telling_where(self._path):
            while data:
                data = data[os.write(self._fd, data) :]
