"""A shard is written: header, tensors and digests in one pass over the bytes."""

import threading
from collections.abc import Iterable, Iterator

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.messages import quoted
from shardproof.checkpoint.format._dtypes import ITEM_SIZES
from shardproof.checkpoint.format._layout import (
    Header,
    aligned,
    header_size,
    note_name,
    pack_header,
    shard_name,
)
from shardproof.checkpoint.format._metadata import ShardEntry, TensorEntry
from shardproof.checkpoint.format._rank_record import Note
from shardproof.checkpoint.format._sealed import seal
from shardproof.checkpoint.format._stop import go_on
from shardproof.checkpoint.save._attempt import Attempt
from shardproof.checkpoint.save._before_saving import before_it_is_there
from shardproof.checkpoint.save._blocks import BLOCK_BYTES, Blocks
from shardproof.checkpoint.save._commit import being_added
from shardproof.checkpoint.save._tensors import Tensor
from shardproof.checkpoint.storage._metadata_file import small_enough
from shardproof.checkpoint.storage._storage import Place
from shardproof.errors import CheckpointError

__all__ = ["DIGESTS", "write_shard", "write_to"]

DIGESTS = {"sha256": "", "sha256-tree": "sha256-tree:", "blake3": "blake3:"}
"""By which a shard's data can be proven, and how the checksum begins."""

_TENSOR_DIGEST = "xxh3-128"
_PIECE_BYTES = {"sha256": BLOCK_BYTES, "sha256-tree": 2**24, "blake3": 2**24}
_SYNC_BYTES = 2**26


def write_shard(
    place: Place,
    rank: int,
    tensors: Iterable[Tensor],
    *,
    digest: str = "sha256",
    sync: bool = True,
    step: int | None = None,
    attempt: Attempt,
    overwrite: bool = False,
    stop: threading.Event | None = None,
) -> str:
    """Write the shard of a rank, and its note; return its path.

    Raises:
        CheckpointError: A tensor gave other bytes than its shape and type imply; or another attempt
            at this prefix was faster.
        OSError: It could not be written; nothing is under its name that was not there before.
        StoppedError: ``stop`` was set.
    """
    name = shard_name(place.name, rank)
    address = place.address(name)
    with before_it_is_there():
        place.storage.make_directories(place.directory)
    with being_added(place, name, overwrite=overwrite, sync=sync) as fd:
        entry = write_to(fd, address, rank, name, tensors, digest=digest, sync=sync, stop=stop)
    token = attempt.new_token()
    note = Note(step=step, shard=entry, attempt=attempt.marks, token=token, checksum="")
    _write_note(place, note, overwrite=overwrite)
    attempt.has_left(address, token)
    return address


def _write_note(place: Place, note: Note, *, overwrite: bool) -> None:
    # Not synced: one that a power cut tore is refused, and its rank saves again.
    name = note_name(place.name, note.shard.rank)
    data = small_enough(seal(note), place.address(name))
    with (
        being_added(place, name, overwrite=overwrite, sync=False) as fd,
        open(fd, "wb", closefd=False) as file,
    ):
        file.write(data)


def write_to(
    fd: int,
    address: str,
    rank: int,
    name: str,
    tensors: Iterable[Tensor],
    *,
    digest: str,
    sync: bool = False,
    stop: threading.Event | None = None,
) -> ShardEntry:
    """Write the shard of a rank into an empty file; return its entry of the metadata."""
    return _Writer(fd, address, digest, sync=sync, stop=stop).write(rank, name, tensors)


class _Writer:
    """One file, and the digest of its data until now."""

    def __init__(
        self, fd: int, address: str, digest: str, *, sync: bool, stop: threading.Event | None
    ) -> None:
        self._fd, self._address, self._algorithm = fd, address, digest
        self._blocks, self._sync, self._stop = Blocks(fd, address), sync, stop
        self._digest = _digest.begin(digest, 0)
        self._at = self._synced = 0

    def write(self, rank: int, name: str, tensors: Iterable[Tensor]) -> ShardEntry:
        begin = header_size(self._checksum())
        self._blocks.put(memoryview(bytes(begin)))  # the real one is known in the end
        self._at = begin
        entries = tuple(map(self._write_tensor, tensors))
        checksum = self._checksum()
        header = Header(rank, checksum, len(entries), self._at - begin)
        self._blocks.flush()
        self._blocks.begin_with(pack_header(header))
        return ShardEntry(rank, name, self._at, checksum, entries)

    def _checksum(self) -> str:
        return DIGESTS[self._algorithm] + str(self._digest.hexdigest())

    def _write_tensor(self, tensor: Tensor) -> TensorEntry:
        self._put(memoryview(bytes(aligned(self._at) - self._at)))
        offset, size = self._at, tensor.size
        digest = _digest.begin(_TENSOR_DIGEST, size)
        for data in tensor.pieces():
            for piece in self._cut(memoryview(data)):
                digest.update(piece)
                self._put(piece)
        if self._at - offset != size:
            problem = (
                f"tensor {quoted(tensor.name)}: expected {size} bytes, by its shape {tensor.shape} "
                f"of {tensor.dtype} ({ITEM_SIZES[tensor.dtype]} bytes each), "
                f"found {self._at - offset}"
            )
            raise CheckpointError(problem, path=self._address)
        text = f"{_TENSOR_DIGEST}:{digest.hexdigest()}"
        return TensorEntry(tensor.name, tensor.dtype, tensor.shape, offset, size, text)

    def _cut(self, data: memoryview) -> Iterator[memoryview]:
        """The same in pieces that end where blocks do, and that a processor's cache holds."""
        n_bytes = _PIECE_BYTES[self._algorithm]
        at = 0
        while at < len(data):
            n = min(n_bytes - self._at % n_bytes, len(data) - at)
            yield data[at : at + n]
            at += n

    def _put(self, piece: memoryview) -> None:
        go_on(self._stop)
        self._digest.update(piece)
        self._blocks.put(piece)
        self._at += len(piece)
        if self._sync and self._at - self._synced >= _SYNC_BYTES:
            files.begin_to_sync(self._fd)
            self._synced = self._at
