"""Read a shard into arrays, new ones or given, and prove it in the same pass over its bytes."""

import importlib.util
import itertools
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from shardproof._base import digest
from shardproof._base.fanout import available_cpus, in_threads
from shardproof._base.messages import quoted, shown, told
from shardproof._base.work import go_on
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import ShardEntry, TensorEntry
from shardproof.checkpoint.storage._local_storage import LocalFile
from shardproof.checkpoint.storage._location import Location
from shardproof.checkpoint.storage._reading import open_shard, read_into
from shardproof.checkpoint.storage._storage import StoredFile
from shardproof.errors import CheckpointError

_PIECE_BYTES = 2**20  # what the cache of a processor holds between reading and hashing
_UNPROVEN_BYTES = 2**24
_MOST_THREADS = 8

Array = np.ndarray[Any, np.dtype[Any]]
Framework = Literal["numpy", "torch"]
Item = TypeVar("Item")


class Reading:
    """One pass over a file, with the digest of what was read, if an algorithm is given."""

    def __init__(
        self, file: StoredFile, algorithm: str | None, digest_threads: int | None = None
    ) -> None:
        self._file, self._algorithm = file, algorithm
        self._threads = digest_threads or available_cpus()
        self._digest: Any = None
        self._piece_bytes = _UNPROVEN_BYTES
        if algorithm is None:
            return
        try:
            self._digest = digest.begin(algorithm, 0, threads=digest_threads)
        except ValueError as error:
            raise CheckpointError(f"it can't be proven: {told(error)}", path=file.path) from None
        self._piece_bytes = digest.piece_bytes(algorithm, digest_threads)
        if algorithm != "blake3":  # which has threads of its own
            self._piece_bytes = _PIECE_BYTES

    @property
    def found(self) -> str:
        """The digest, as ``"<algorithm>:<hex>"``."""
        return f"{self._algorithm}:{self._digest.hexdigest()}" if self._digest else ""

    def fill(self, view: memoryview, offset: int) -> None:
        """Fill a buffer from an offset on; a file that ends before is a `CheckpointError`."""
        is_tree = isinstance(self._digest, digest.TreeDigest)
        first = min(self._digest.n_to_leaf, len(view)) if is_tree else 0
        end = (
            first + (len(view) - first) // digest.LEAF_BYTES * digest.LEAF_BYTES
            if is_tree
            else len(view)
        )
        self._update(self._read(view[:first], offset))

        def read(place: int) -> "memoryview | list[bytes]":
            piece = self._read(view[place : min(end, place + self._piece_bytes)], offset + place)
            return digest.leaves_of(piece) if is_tree else piece

        for piece in self._each(read, range(first, end, self._piece_bytes)):
            if isinstance(piece, list):
                self._digest.add(piece)
            else:
                self._update(piece)
        self._update(self._read(view[end:], offset + end))

    def _update(self, piece: memoryview) -> None:
        if self._digest is not None:
            self._digest.update(piece)

    def _read(self, piece: memoryview, offset: int) -> memoryview:
        at = 0
        while at < len(piece):
            go_on()
            at += read_into(self._file, piece[at:], offset + at)
        return piece

    def _each(self, read: Callable[[int], Item], places: range) -> Iterable[Item]:
        """Read pieces; of a local file by threads, ahead of this one, which hashes the others."""
        n_threads = min(self._threads, _MOST_THREADS, len(places))
        if n_threads < 2 or not isinstance(self._file, LocalFile):
            return map(read, places)
        return in_threads(read, places, n_threads=n_threads, name="shardproof-reader")

    def pieces(self, start: int, end: int) -> Iterator[memoryview]:
        """Yield the bytes between two offsets, in pieces each of which the next one overwrites."""
        n_bytes = max(1, min(self._piece_bytes, end - start))
        buffer = memoryview(bytearray(n_bytes))
        for at in range(start, end, n_bytes):
            piece = buffer[: end - at]
            self.fill(piece, at)
            yield piece

    def skip(self, start: int, end: int) -> None:
        """Read what is not wanted, for the digest."""
        for _ in self.pieces(start, end):
            pass


def algorithm_of(file: StoredFile, entry: ShardEntry) -> str:
    """Return the algorithm by which a shard can be proven; refuse one that states none."""
    if not entry.checksum:
        problem = (
            "it states no checksum, so that it can't be proven; MultiShardLoader(level="
            "'complete') takes it as it is"
        )
        raise CheckpointError(problem, path=file.path)
    return entry.checksum.rpartition(":")[0] or "sha256"


def checksum_found(
    file: StoredFile,
    entry: ShardEntry,
    arrays: Mapping[str, Array] | None = None,
    *,
    digest_threads: int | None = None,
) -> str:
    """Compute the checksum of a shard as its header states it; read tensors into arrays by name."""
    reading = Reading(file, algorithm_of(file, entry), digest_threads)
    at = _format.header_size(entry.checksum)
    for tensor in entry.tensors if arrays else ():
        if arrays and tensor.name in arrays:
            reading.skip(at, tensor.offset)
            reading.fill(_bytes_of(arrays[tensor.name]), tensor.offset)
            at = tensor.offset + tensor.size
    reading.skip(at, entry.file_size)
    return reading.found.removeprefix("sha256:")


def refuse_other(file: StoredFile, entry: ShardEntry, found: str) -> None:
    """Raise `CheckpointError` unless the data of a shard have the checksum that it states."""
    if found != entry.checksum:
        problem = f"expected data with the checksum {entry.checksum}, found {found}; restore it"
        raise CheckpointError(problem, path=file.path)


def _read_tensor(
    file: StoredFile, tensor: TensorEntry, array: Array | None, threads: int | None = None
) -> None:
    """Read one tensor, if there is an array for it, and prove it by its own digest."""
    reading = Reading(file, str(tensor.digest).partition(":")[0], threads)
    if array is None:
        reading.skip(tensor.offset, tensor.offset + tensor.size)
    else:
        reading.fill(_bytes_of(array), tensor.offset)
    if reading.found != tensor.digest:
        name = quoted(tensor.name)
        problem = f"tensor {name}: expected {tensor.digest}, found {reading.found}; restore it"
        raise CheckpointError(problem, path=file.path)


def read_tensors(
    file: StoredFile,
    shard: ShardEntry,
    tensors: Sequence[TensorEntry],
    *,
    framework: Framework,
    prove: bool = True,
    alone: bool = False,
    out: Mapping[str, Array] | None = None,
    digest_threads: int | None = None,
) -> dict[str, Any]:
    """Read tensors of a shard by name, into arrays of ``out`` or new ones; their sizes are proven.

    They are proven by the shard's checksum; or ``alone``, each by its own digest, if all have one.
    """
    given = out or {}
    arrays = {  # new ones of no more bytes than the file was seen to have
        t.name: given[t.name] if t.name in given else np.empty(t.shape, _numpy_dtype(t.dtype))
        for t in tensors
    }
    if not prove:
        for tensor in tensors:
            Reading(file, None, digest_threads).fill(_bytes_of(arrays[tensor.name]), tensor.offset)
    elif alone and all(tensor.digest for tensor in tensors):
        for tensor in tensors:
            _read_tensor(file, tensor, arrays[tensor.name], digest_threads)
    else:
        found = checksum_found(file, shard, arrays, digest_threads=digest_threads)
        refuse_other(file, shard, found)
    return {t.name: _as_framework(arrays[t.name], t, framework) for t in tensors}


def mapped_tensors(
    location: Location,
    shard: ShardEntry,
    tensors: Sequence[TensorEntry],
    *,
    framework: Framework,
    prove: bool,
) -> dict[str, Any]:
    """Return read-only arrays whose memory is a file's; the file is open as long as they live."""
    with open_shard(location, shard) as file:
        if not isinstance(file, LocalFile):
            raise ValueError(f"mapped: expected a local file, found '{shown(file.path)}'")
        if prove and all(tensor.digest for tensor in tensors):
            for tensor in tensors:
                _read_tensor(file, tensor, None)
        elif prove:
            refuse_other(file, shard, checksum_found(file, shard))
        memory = mmap.mmap(file.fd, shard.file_size, prot=mmap.PROT_READ)
    arrays = {}
    for tensor in tensors:
        array = np.empty(0, np.uint8)
        if tensor.size:
            array = np.frombuffer(memory, np.uint8, tensor.size, tensor.offset)
        array = array.view(_numpy_dtype(tensor.dtype)).reshape(tensor.shape)
        arrays[tensor.name] = _as_framework(array, tensor, framework)
    return arrays


def _bytes_of(array: Array) -> memoryview:
    """Return the bytes of an array in C order."""
    return array.reshape(-1).view(np.uint8).data


def _numpy_dtype(name: str) -> "np.dtype[Any]":
    """Return the type in numpy, little endian; without ml_dtypes, unsigned integers for others."""
    if name in _format.NUMPY_TYPES:
        return np.dtype(name).newbyteorder("<")
    if importlib.util.find_spec("ml_dtypes"):
        import ml_dtypes  # noqa: PLC0415 - where it is installed

        if hasattr(ml_dtypes, name):
            dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return dtype
    return np.dtype(f"<u{_format.ITEM_SIZES[name]}")


def _as_framework(array: Array, tensor: TensorEntry, framework: Framework) -> Any:
    """Return an array as the library that was asked for has it, in the same memory."""
    return to_torch(array, tensor.dtype) if framework == "torch" else array


def to_torch(array: Array, dtype: str) -> Any:
    """Return the tensor that has the memory of an array, with the type of that name."""
    import torch  # noqa: PLC0415 - the caller asked for its tensors

    raw = torch.from_numpy(array.reshape(-1).view(np.uint8))
    return raw.view(getattr(torch, dtype)).reshape(array.shape)


ShardOuts = Sequence[Mapping[str, Array]]
"""Arrays for all tensors of some shards."""


def checked_outs(out: Mapping[str, Array], wanted: Mapping[str, TensorEntry]) -> dict[str, Array]:
    """Return those of the arrays that are for tensors, if each can be read into its own."""
    given = {name: out[name] for name in wanted if name in out}
    _refuse_misfits({_said("out", name): (given[name], wanted[name]) for name in given})
    return given


def check_shard_outs(said: Sequence[str], outs: ShardOuts, shards: Sequence[ShardEntry]) -> None:
    """Refuse arrays, said to be these, unless there is one for each tensor, and no other."""
    pairs: dict[str, tuple[Array, TensorEntry]] = {}
    for where, out, shard in zip(said, outs, shards, strict=True):
        wanted = {tensor.name: tensor for tensor in shard.tensors}
        for name in [*wanted, *out]:
            if name not in out:
                raise ValueError(f"{_said(where, name)}: expected an array, found nothing")
            if name not in wanted:
                expected = f"the name of a tensor of rank {shard.rank}"
                raise ValueError(f"{_said(where, name)}: expected {expected}")
            pairs[_said(where, name)] = out[name], wanted[name]
    _refuse_misfits(pairs)


def _said(where: str, name: str) -> str:
    return f"{where}[{quoted(name)}]"


def _refuse_misfits(pairs: Mapping[str, tuple[Array, TensorEntry]]) -> None:
    """Raise for arrays, by how the caller can say them, into which tensors can't be read."""
    for said, (array, tensor) in pairs.items():
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{said}: expected an array of numpy, found {type(array).__name__}")
        expected = _numpy_dtype(tensor.dtype)
        if array.dtype != expected:
            raise TypeError(f"{said}: expected {expected}, found {array.dtype}")
        if array.shape != tensor.shape:
            raise ValueError(f"{said}: expected the shape {tensor.shape}, found {array.shape}")
        if not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError(f"{said}: expected an array in C order that can be written")
    # In C order, so an array is all of its memory; an empty one has none.
    spans = sorted(
        (array.__array_interface__["data"][0], array.nbytes, said)
        for said, (array, _) in pairs.items()
        if array.nbytes
    )
    for (begin, n_bytes, said), (after, _, other) in itertools.pairwise(spans):
        if after < begin + n_bytes:
            both = f"found some in {said} and {other}"
            raise ValueError(f"out: expected arrays that have no memory in common, {both}")
