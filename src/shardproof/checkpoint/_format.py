"""The format of a checkpoint, and the laws that it obeys: docs/checkpoint-format.md has both."""

import hashlib
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import numpy as np

from shardproof._base import json
from shardproof._base.messages import listed, quoted, told
from shardproof.errors import CheckpointError, ManifestError

SCHEMA_VERSION = 1

MAX_NAME = 4096  # characters of the name of a tensor
MAX_DIMENSIONS = 32  # numpy's, before 2.0
MAX_NUMBER = 2**63 - 1
MAX_RANK = 2**31 - 1
_SHOWN = 20

METADATA_END = ".metadata.json"  # of the file that is written last, and makes the checkpoint
PRUNED_END = ".metadata.json.pruned"  # while the checkpoint is being removed

NUMPY_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_FLOAT8 = tuple(f"float8_{kind}" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"))

ITEM_SIZES = {name: np.dtype(name).itemsize for name in NUMPY_TYPES}
ITEM_SIZES |= {"bfloat16": 2} | dict.fromkeys(_FLOAT8, 1)
"""Bytes of one element, by the name of its type."""

TIMESTAMP = re.compile(
    r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?Z",
    re.ASCII,
)
"""A moment in UTC: RFC 3339, section 5.6."""

_BROKEN = "it contradicts itself"

_CHECKSUM = re.compile(r"|[0-9a-f]{64}|(?:blake3|sha256-tree):[0-9a-f]{64}")
_DIGEST = re.compile(r"xxh3-128:[0-9a-f]{32}|(?:sha256|blake3):[0-9a-f]{64}")
_TAIL = re.compile(rb'sha256:([0-9a-f]{64})"\}\n')
_TAIL_BYTES = 74

_ALIGNMENT = 64
_MAGIC = 0x53484152
_START = struct.Struct("<Iii")
_END = struct.Struct("<iq")
_MAX_CHECKSUM = 200

Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=MAX_RANK)]
WorldSize = Annotated[int, msgspec.Meta(ge=1, le=MAX_RANK + 1)]


class TensorEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of a shard.

    Attributes:
        name: Its name.
        dtype: The type of its elements, such as ``"float32"`` or ``"bfloat16"``.
        shape: Its shape; empty for a single number.
        offset: Where its bytes begin, from the start of the file.
        size: How many bytes they are.
        digest: ``"<algorithm>:<hex>"`` of them alone; None where there is none.
    """

    name: str
    dtype: str
    shape: tuple[Count, ...]
    offset: Count
    size: Count
    digest: str | None


class ShardEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The shard of one rank.

    Attributes:
        rank: Of the process that wrote it.
        file: The name of its file.
        file_size: Its size in bytes.
        checksum: Of its data, as the header states it; empty where there is none.
        tensors: What it holds, in the order of the file.
    """

    rank: Rank
    file: str
    file_size: Count
    checksum: str
    tensors: tuple[TensorEntry, ...]


class Sharding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How tensors were dealt out to ranks: for people to read, and not used.

    Attributes:
        strategy: Any text, such as ``"fsdp"``.
        shard_count: How many shards there are.
        precision: Any text, such as ``"bfloat16"``.
    """

    strategy: str
    shard_count: WorldSize
    precision: str


class CheckpointMetadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a checkpoint's metadata says.

    Attributes:
        schema_version: Version of the format.
        world_size: How many ranks wrote it.
        step: Of the training.
        timestamp: When it was written, RFC 3339 in UTC.
        sharding: How tensors were dealt out.
        shards: One for each rank, in the order of ranks.
        checksum: Of the metadata file.
    """

    schema_version: Count
    world_size: WorldSize
    step: Count
    timestamp: str
    sharding: Sharding
    shards: tuple[ShardEntry, ...]
    checksum: str


class RankRecord(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True
):
    """What a rank says of its shard to the process that writes the metadata."""

    step: Count | None
    shard: ShardEntry
    attempt: dict[str, str] = {}  # texts by who says them; two that differ are of two attempts
    token: str = ""  # of this shard alone, by which its writer knows it again
    checksum: str


Decoded = TypeVar("Decoded")
Sealed = TypeVar("Sealed", CheckpointMetadata, RankRecord)


def aligned(offset: int) -> int:
    """Return the first multiple of the alignment that is not below ``offset``."""
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def header_size(checksum: str) -> int:
    """Return where the data of a shard begins."""
    return _START.size + len(checksum.encode()) + _END.size


class ShardHeader(NamedTuple):
    """What a shard file says of itself."""

    rank: int
    checksum: str
    n_tensors: int
    data_length: int

    @classmethod
    def of(cls, entry: ShardEntry) -> "ShardHeader":
        """Return the header that a shard has, if it is the one that the metadata names."""
        length = entry.file_size - header_size(entry.checksum)
        return cls(entry.rank, entry.checksum, len(entry.tensors), length)

    @classmethod
    def parse(cls, data: bytes) -> "ShardHeader":
        """Parse the first bytes of a shard file; raise `ValueError` where they are no header."""
        if len(data) < _START.size:
            raise ValueError(f"expected a header, found {len(data)} bytes")
        magic, rank, length = _START.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError(f"expected the magic {_MAGIC:#x}, found {magic:#x}")
        if not 0 <= length <= _MAX_CHECKSUM:
            raise ValueError(f"expected a checksum of 0 to {_MAX_CHECKSUM} bytes, found {length}")
        end = _START.size + length
        if len(data) < end + _END.size:
            raise ValueError(f"expected a header of {end + _END.size} bytes, found {len(data)}")
        checksum = data[_START.size : end].decode("ascii", "backslashreplace")
        return cls(rank, checksum, *_END.unpack_from(data, end))

    def packed(self) -> bytes:
        """Return the bytes with which a shard file begins."""
        checksum = self.checksum.encode()
        start = _START.pack(_MAGIC, self.rank, len(checksum))
        return start + checksum + _END.pack(self.n_tensors, self.data_length)

    def mismatch(self, begin: bytes) -> tuple[str, str] | None:
        """Return this and the header that a shard begins with in words, where they differ."""
        if begin == self.packed():
            return None
        try:
            found = self.parse(begin)
        except ValueError as error:
            return "what the metadata implies", f"another: {told(error)}"
        if found.rank != self.rank:
            return f"rank {self.rank}", f"rank {found.rank}: files were swapped or copied"
        if found.checksum != self.checksum:
            stated = f"{quoted(found.checksum)}: another step's shard, or damage"
            return f"the checksum {self.checksum}", stated
        return str(self), str(found)


def shard_name(prefix_name: str, rank: int) -> str:
    """Return the name of a rank's shard."""
    return f"{prefix_name}_shard_{rank}.shard"


def can_be(shape: Sequence[int], dtype: str) -> bool:
    """Return whether an array can have a shape; numpy counts bytes without lengths that are 0."""
    return math.prod(filter(None, shape)) * ITEM_SIZES[dtype] <= MAX_NUMBER


def seal(value: CheckpointMetadata | RankRecord) -> bytes:
    """Return the text of metadata or of a record, with the checksum that is computed here."""
    body = msgspec.json.encode(msgspec.structs.replace(value, checksum="")).removesuffix(b'"}')
    return body + b"sha256:" + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def unseal(data: bytes, kind: type[Sealed], *, path: str) -> Sealed:
    """Decode a sealed text, and prove it; all that is wrong with it is a `CheckpointError`."""
    refuse_large(len(data), path=path)
    value = decode_json(data, kind, path=path)
    tail = _TAIL.fullmatch(data[-_TAIL_BYTES:])
    if tail is None:
        raise CheckpointError("it doesn't end with its own checksum; restore it", path=path)
    digits = hashlib.sha256(data[:-_TAIL_BYTES]).hexdigest()
    if tail[1] != digits.encode() or value.checksum != f"sha256:{digits}":
        raise CheckpointError("its bytes don't have the checksum at its end; restore it", path=path)
    return value


def decode_json(data: bytes, kind: type[Decoded], *, path: str) -> Decoded:
    """Decode JSON from outside; what is wrong with it is a `CheckpointError`."""
    try:
        return json.decode(data, kind, path=path)
    except ManifestError as error:
        line = f"line {error.line}: " if error.line is not None else ""
        field = f"field {error.field}: " if error.field is not None else ""
        raise CheckpointError(f"{line}{field}{error.problem}", path=path) from error


def refuse(problem: str, cases: Iterable[str], *, path: str) -> None:
    """Raise one `CheckpointError` that lists all cases of a problem, if there are any."""
    if found := list(cases):
        raise CheckpointError(listed(problem, found), path=path)


def refuse_large(n_bytes: int, *, path: str) -> None:
    """Raise a `CheckpointError` for JSON of more bytes than are read."""
    if n_bytes > json.MAX_BYTES:
        problem = f"expected at most {json.MAX_BYTES} bytes, found {n_bytes}"
        raise CheckpointError(problem, path=path)


def decode(data: bytes, *, path: str, prefix_name: str) -> CheckpointMetadata:
    """Decode the text of a metadata file; each law that it breaks is listed in one refusal."""
    metadata = unseal(data, CheckpointMetadata, path=path)
    if (version := metadata.schema_version) != SCHEMA_VERSION:
        problem = f"field $.schema_version: expected {SCHEMA_VERSION}, found {version}"
        raise CheckpointError(problem, path=path)
    problems, world_size = [], metadata.world_size
    if not TIMESTAMP.fullmatch(metadata.timestamp):
        found = quoted(metadata.timestamp)
        problems.append(f"timestamp: expected one such as 2026-11-21T20:00:00Z, found {found}")
    if (count := metadata.sharding.shard_count) != world_size:
        expected = f"expected the world size {world_size}"
        problems.append(f"sharding.shard_count: {expected}, found {count}")
    ranks = [shard.rank for shard in metadata.shards]
    if len(ranks) != world_size or ranks != [*range(world_size)]:
        found = f"{len(ranks)} with ranks {quoted(str(ranks[:_SHOWN]))}"
        problems.append(f"shards: expected {world_size} with ranks 0, 1, ..., found {found}")
    for shard in metadata.shards:
        broken = _broken_by_shard(shard, prefix_name)
        problems += [f"shard of rank {shard.rank}: {problem}" for problem in broken]
    refuse(_BROKEN, problems, path=path)
    return metadata


def decode_record(data: bytes, rank: int, *, path: str, prefix_name: str) -> RankRecord:
    """Decode the record of a rank; each law that it breaks is listed in one refusal."""
    record = unseal(data, RankRecord, path=path)
    found = record.shard.rank
    foreign = [] if found == rank else [f"rank: expected {rank}, found {found}"]
    refuse(_BROKEN, [*foreign, *_broken_by_shard(record.shard, prefix_name)], path=path)
    return record


def refuse_broken(shard: ShardEntry, *, path: str) -> None:
    """Raise a `CheckpointError` for an entry of any prefix that breaks a law."""
    prefix_name = shard.file.removesuffix(shard_name("", shard.rank))
    refuse(_BROKEN, _broken_by_shard(shard, prefix_name), path=path)


def _broken_by_shard(shard: ShardEntry, prefix_name: str) -> Iterator[str]:
    """Yield every law that the entry of one shard breaks."""
    expected = shard_name(prefix_name, shard.rank)
    if shard.file != expected:
        yield f"file: expected {quoted(expected)}, found {quoted(shard.file)}"
    if not _CHECKSUM.fullmatch(shard.checksum):
        yield f"checksum: expected hexadecimal digits, found {quoted(shard.checksum)}"
    names = [tensor.name for tensor in shard.tensors]
    if len(set(names)) != len(names):
        twice = [name for name, n in Counter(names).items() if n > 1]
        yield f"tensors: two have one name: {', '.join(map(quoted, twice[:_SHOWN]))}"
    if any(not 0 < len(name) <= MAX_NAME for name in names):
        yield f"tensors: a name is empty, or over {MAX_NAME} characters"
    end = header_size(shard.checksum)
    for tensor in shard.tensors:
        begin = aligned(end)
        problems = [*_broken_by_tensor(tensor)]
        if tensor.offset != begin:
            problems.append(f"offset: expected {begin}, found {tensor.offset}")
        yield from (f"tensor {quoted(tensor.name)}: {problem}" for problem in problems)
        end = begin + tensor.size
    if shard.file_size != end:
        yield f"file_size: expected {end}, where the last tensor ends, found {shard.file_size}"


def _broken_by_tensor(tensor: TensorEntry) -> Iterator[str]:
    if tensor.digest is not None and not _DIGEST.fullmatch(tensor.digest):
        yield f"digest: expected hexadecimal digits, found {quoted(tensor.digest)}"
    if tensor.dtype not in ITEM_SIZES:
        yield f"dtype: expected one of {', '.join(ITEM_SIZES)}, found {quoted(tensor.dtype)}"
        return
    shape = tensor.shape
    if len(shape) > MAX_DIMENSIONS:
        yield f"shape: expected at most {MAX_DIMENSIONS} dimensions, found {len(shape)}"
        return
    if not can_be(shape, tensor.dtype):
        yield f"shape: expected lengths that an array can have, found {quoted(str(shape))}"
    expected = math.prod(shape) * ITEM_SIZES[tensor.dtype]
    if tensor.size != expected:
        yield f"size: expected {quoted(str(expected))}, by dtype and shape, found {tensor.size}"
