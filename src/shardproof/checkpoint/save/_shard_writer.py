"""Write tensors as a shard, in pieces: header, bytes and digests in one pass over them."""

import dataclasses
import math
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.messages import quoted, told
from shardproof._base.work import go_on
from shardproof.checkpoint._format import (
    MAX_NAME,
    RankRecord,
    ShardEntry,
    TensorEntry,
    seal,
)
from shardproof.checkpoint.format._dtypes import ITEM_SIZES, Array, from_torch, name_of, view_of
from shardproof.checkpoint.format._layout import (
    ShardHeader,
    aligned,
    header_size,
    pack_header,
    pending_prefix,
    record_name,
    shard_name,
)
from shardproof.checkpoint.save._commit import Attempt
from shardproof.checkpoint.save._way import overtaken, refuse_newer, refuse_text
from shardproof.checkpoint.storage._reading import small_enough
from shardproof.checkpoint.storage._storage import Location
from shardproof.errors import CheckpointError

Algorithm = Literal["sha256", "sha256-tree", "blake3"]

BLOCK_BYTES = 2**20

_TENSOR_DIGEST = "xxh3-128"
_PIECE_BYTES = {"sha256": BLOCK_BYTES, "sha256-tree": 2**24, "blake3": 2**24}
_SYNC_BYTES = 2**26
_COPIED_BYTES = 2**24  # at once, of an array in another order


class Tensor(NamedTuple):
    """A tensor to be written; its bytes come little endian in C order, in pieces of any size."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[bytes | memoryview]]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * ITEM_SIZES[self.dtype]


def tensors_of(arrays: Mapping[str, Any]) -> Iterable[Tensor]:
    """Return arrays of numpy and tensors of torch as what is to be written; of a dict at once."""
    for name in arrays:
        if not isinstance(name, str):
            raise TypeError(f"arrays: expected names as keys, found {type(name).__name__}")
        if not 0 < len(name) <= MAX_NAME:
            expected = f"names of 1 to {MAX_NAME} characters"
            raise ValueError(f"arrays: expected {expected}, found {len(name)}")
        refuse_text("arrays", name, "names")
    tensors = (_tensor_of(str(name), arrays[name]) for name in arrays)
    return list(tensors) if isinstance(arrays, dict) else tensors


def _tensor_of(name: str, array: Any) -> Tensor:
    torch = sys.modules.get("torch")  # without which there is no tensor of it
    try:
        if torch is not None and isinstance(array, torch.Tensor):
            dtype, raw = from_torch(array)
            return Tensor(name, dtype, tuple(array.shape), lambda: [view_of(raw)])
        if not isinstance(array, (np.ndarray, np.generic)) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"expected an array, found {type(array).__name__}")
        numbers = np.asarray(array)
        return Tensor(name, name_of(numbers.dtype), numbers.shape, lambda: _pieces(numbers))
    except TypeError as error:
        raise TypeError(f"arrays[{quoted(name)}]: {told(error)}") from None


def _pieces(array: Array) -> Iterator[memoryview]:
    little = array.dtype.newbyteorder("<")
    if array.flags.c_contiguous and array.dtype == little:
        yield view_of(array)
        return
    # Block by block, since a copy of all of it may not fit.
    flat = array.flat
    step = max(1, _COPIED_BYTES // array.dtype.itemsize)
    for start in range(0, array.size, step):
        yield view_of(np.ascontiguousarray(flat[start : start + step], dtype=little))


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
    """Write the shard of a rank, and its record; return its path."""
    storage, name, attempt = location.storage, shard_name(location.name, rank), options.attempt
    path, token = location.beside(name), secrets.token_hex(8)  # which no other shard has
    pending = location.beside(f"{pending_prefix(location.name)}{token}.tmp")
    storage.make_directories(location.directory)
    with overtaken(path), storage.writer(path, pending, sync=options.sync) as fd:
        writer = ShardWriter(fd, path, options.algorithm, sync=options.sync)
        entry = writer.write(rank, name, tensors)
        refuse_newer(location, overwrite=options.overwrite)
    record = RankRecord(
        step=options.step, shard=entry, attempt=attempt.marks, token=token, checksum=""
    )
    # Not synced: one that a power cut tore is refused, and its rank saves again.
    at = location.beside(record_name(location.name, rank))
    storage.write(at, small_enough(seal(record), at), sync=False)
    attempt.tokens[path] = token
    return path


class ShardWriter:
    """Write one shard into an empty file, and compute the digests of what is written."""

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
        # Not a loop, whose variable would keep a tensor while the next one is made.
        entries = tuple(map(self._write_tensor, tensors))
        checksum = self._checksum()
        header = ShardHeader(rank, checksum, len(entries), self._at - begin)
        self._blocks.flush()
        self._blocks.begin_with(pack_header(header))
        return ShardEntry(rank, name, self._at, checksum, entries)

    def _checksum(self) -> str:
        return f"{self._algorithm}:{self._digest.hexdigest()}".removeprefix("sha256:")

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
    """Write a new file from its start on, in blocks that begin at multiples of their size."""

    # A write that begins within a page of the page cache makes the kernel take small pages for all
    # of it: on ext4 such writes ran at a tenth of the speed.

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
