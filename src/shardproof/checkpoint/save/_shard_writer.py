"""Write tensors as a shard, in pieces: header, bytes and digests in one pass over them."""

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from shardproof._base import digest as _digest
from shardproof._base import files
from shardproof._base.fanout import Behind
from shardproof._base.messages import quoted, told
from shardproof._base.work import go_on
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import RankRecord, ShardEntry, ShardHeader, TensorEntry
from shardproof.checkpoint.read._outs import is_tensor
from shardproof.checkpoint.save._commit import (
    Algorithm,
    Attempt,
    overtaken,
    refuse_newer,
    refuse_text,
)
from shardproof.checkpoint.storage._location import Location
from shardproof.checkpoint.storage._reading import small_enough
from shardproof.errors import CheckpointError

BLOCK_BYTES = 2**20

_TENSOR_DIGEST = "xxh3-128"
_PIECE_BYTES = {"sha256": 2**18, "sha256-tree": 2**24, "blake3": 2**24}
_WRITTEN_BYTES = 2**24  # at once
_SYNC_BYTES = 2**26
_COPIED_BYTES = 2**22  # at once, of an array in another order; a few such wait to be written


class Tensor(NamedTuple):
    """A tensor to be written; its bytes come little endian in C order, in pieces of any size."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[bytes | memoryview]]

    @property
    def size(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * _format.ITEM_SIZES[self.dtype]


def tensors_of(arrays: Mapping[str, Any]) -> Iterable[Tensor]:
    """Return arrays of numpy and tensors of torch as what is to be written; of a dict at once."""
    for name in arrays:
        if not isinstance(name, str):
            raise TypeError(f"arrays: expected names as keys, found {type(name).__name__}")
        if not 0 < len(name) <= _format.MAX_NAME:
            expected = f"names of 1 to {_format.MAX_NAME} characters"
            raise ValueError(f"arrays: expected {expected}, found {len(name)}")
        refuse_text("arrays", name, "names")
    tensors = (_tensor_of(str(name), arrays[name]) for name in arrays)
    return list(tensors) if isinstance(arrays, dict) else tensors


def _tensor_of(name: str, array: Any) -> Tensor:
    try:
        if is_tensor(array):
            from shardproof.checkpoint import _torch  # noqa: PLC0415 - there is a tensor

            dtype, flat = _torch.from_torch(array)
            return Tensor(name, dtype, tuple(array.shape), lambda: _torch.pieces_of(flat))
        if not isinstance(array, (np.ndarray, np.generic)) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"expected an array, found {type(array).__name__}")
        numbers = np.asarray(array)
        dtype = numbers.dtype.name
        if _format.ITEM_SIZES.get(dtype) != numbers.dtype.itemsize:
            expected = ", ".join(sorted(_format.ITEM_SIZES))
            raise TypeError(f"dtype: expected one of {expected}, found {numbers.dtype}")
        return Tensor(name, dtype, numbers.shape, lambda: _pieces(numbers))
    except TypeError as error:
        raise TypeError(f"arrays[{quoted(name)}]: {told(error)}") from None


def _pieces(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    little = array.dtype.newbyteorder("<")
    if array.flags.c_contiguous and array.dtype == little:
        yield array.reshape(-1).view(np.uint8).data
        return
    # Block by block, since a copy of all of it may not fit.
    flat = array.flat
    step = max(1, _COPIED_BYTES // array.dtype.itemsize)
    for start in range(0, array.size, step):
        yield np.ascontiguousarray(flat[start : start + step], dtype=little).view(np.uint8).data


def write_shard(
    location: Location,
    rank: int,
    tensors: Iterable[Tensor],
    attempt: Attempt,
    *,
    step: int | None,
    overwrite: bool,
) -> str:
    """Write the shard of a rank, and its record; return its path."""
    storage, name, sync = location.storage, _format.shard_name(location.name, rank), attempt.sync
    path, token = location.beside(name), secrets.token_hex(8)  # which no other shard has
    storage.make_directories(location.directory)
    with overtaken(path), storage.writer(path, location.pending(token), sync=sync) as fd:
        entry = ShardWriter(fd, path, attempt.algorithm, sync=sync).write(rank, name, tensors)
        refuse_newer(location, overwrite=overwrite)
    record = RankRecord(step=step, shard=entry, attempt=attempt.marks, token=token, checksum="")
    # Not synced: one that a power cut tore is refused, and its rank saves again.
    at = location.record(rank)
    storage.write(at, small_enough(_format.seal(record), at), sync=False)
    attempt.tokens[path] = token
    return path


class ShardWriter:
    """Write one shard into an empty file, and compute the digests of what is written."""

    # In blocks that begin at multiples of their size: a write that begins within a page of the page
    # cache makes the kernel take small pages for all of it, and on ext4 such writes ran at a tenth
    # of the speed. Other threads write, and hash the leaves of a tree, while this one goes on.

    def __init__(self, fd: int, path: str, algorithm: Algorithm, *, sync: bool = False) -> None:
        self._fd, self._path, self._algorithm, self._sync = fd, path, algorithm, sync
        self._behind = Behind("shardproof-saver")
        self._digest = _digest.begin(algorithm, 0, submit=self._behind.submit)
        self._held = bytearray()  # less than a block
        self._at = self._written = self._synced = 0

    def write(self, rank: int, name: str, tensors: Iterable[Tensor]) -> ShardEntry:
        """Write the shard of a rank; return its entry of the metadata; raise as `write_shard`."""
        begin = self._at = _format.header_size(self._checksum())
        self._held += bytes(begin)  # the real header is known in the end
        write = self._write_tensor if isinstance(tensors, list) else self._write_lazy
        with self._behind:
            # Not a loop, whose variable would keep a tensor while the next one is made.
            entries = tuple(map(write, tensors))
            checksum = self._checksum()
            self._write(self._held)
        self._pwrite(ShardHeader(rank, checksum, len(entries), self._at - begin).packed(), 0)
        return ShardEntry(rank, name, self._at, checksum, entries)

    def _checksum(self) -> str:
        return f"{self._algorithm}:{self._digest.hexdigest()}".removeprefix("sha256:")

    def _write_lazy(self, tensor: Tensor) -> TensorEntry:
        """Write a tensor that is to be gone when the next one is made."""
        entry = self._write_tensor(tensor)
        self._behind.finish()
        return entry

    def _write_tensor(self, tensor: Tensor) -> TensorEntry:
        self._put(memoryview(bytes(_format.aligned(self._at) - self._at)), None)
        offset, size = self._at, tensor.size
        digest = _digest.begin(_TENSOR_DIGEST, size)
        for data in tensor.pieces():
            left = memoryview(data)
            while left:
                n = _WRITTEN_BYTES - self._at % _WRITTEN_BYTES  # so that pieces end where blocks do
                piece, left = left[:n], left[n:]
                self._put(piece, digest)
        if self._at - offset != size:
            problem = (
                f"tensor {quoted(tensor.name)}: expected {size} bytes, by its shape {tensor.shape} "
                f"of {tensor.dtype} ({_format.ITEM_SIZES[tensor.dtype]} bytes each), "
                f"found {self._at - offset}"
            )
            raise CheckpointError(problem, path=self._path)
        text = f"{_TENSOR_DIGEST}:{digest.hexdigest()}"
        return TensorEntry(tensor.name, tensor.dtype, tensor.shape, offset, size, text)

    def _put(self, piece: memoryview, digest: Any) -> None:
        go_on()
        n_bytes = _PIECE_BYTES[self._algorithm]
        for start in range(0, len(piece), n_bytes):  # what a processor's cache holds
            self._digest.update(piece[start : start + n_bytes])
            if digest is not None:
                digest.update(piece[start : start + n_bytes])
        self._at += len(piece)
        if self._held:  # it is filled up first
            n = BLOCK_BYTES - len(self._held)
            self._held += piece[:n]
            piece = piece[n:]
            if len(self._held) == BLOCK_BYTES:
                self._write(self._held)
                self._held = bytearray()
        if n := len(piece) // BLOCK_BYTES * BLOCK_BYTES:
            self._write(piece[:n])
        self._held += piece[n:]
        if self._sync and self._written - self._synced >= _SYNC_BYTES:
            files.begin_to_sync(self._fd)
            self._synced = self._written

    def _write(self, data: bytearray | memoryview) -> None:
        self._behind.submit(self._pwrite, data, self._written)
        self._written += len(data)

    def _pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        with files.telling_where(self._path):
            files.write_at(self._fd, data, offset)
