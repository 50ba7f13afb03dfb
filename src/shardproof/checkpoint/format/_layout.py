"""Name the files of a checkpoint, and pack and parse the header of a shard.

docs/checkpoint-format.md describes the format.
"""

import hashlib
import os
import struct
from typing import NamedTuple

ALIGNMENT = 64
MAX_RANK = 2**31 - 1

_MAGIC = 0x53484152
_START = struct.Struct("<Iii")
_END = struct.Struct("<iq")
_MAX_CHECKSUM = 200


class ShardHeader(NamedTuple):
    """What a shard file says of itself."""

    rank: int
    checksum: str
    n_tensors: int
    data_length: int


def aligned(offset: int) -> int:
    """Return the first multiple of the alignment that is not below ``offset``."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def header_size(checksum: str) -> int:
    """Return where the data of a shard begins."""
    return _START.size + len(checksum.encode()) + _END.size


def pack_header(header: ShardHeader) -> bytes:
    """Return the bytes with which a shard file begins."""
    checksum = header.checksum.encode()
    start = _START.pack(_MAGIC, header.rank, len(checksum))
    return start + checksum + _END.pack(header.n_tensors, header.data_length)


def parse_header(data: bytes) -> ShardHeader:
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
    return ShardHeader(rank, checksum, *_END.unpack_from(data, end))


def shard_name(prefix_name: str, rank: int) -> str:
    """Return the name of a rank's shard."""
    return f"{prefix_name}_shard_{rank}.shard"


def record_name(prefix_name: str, rank: int) -> str:
    """Return the name of the file in which a rank describes its shard."""
    return f"{prefix_name}_shard_{rank}.tensors.json"


def metadata_name(prefix_name: str) -> str:
    """Return the name of the metadata file, which is written last and makes the checkpoint."""
    return f"{prefix_name}.metadata.json"


def pruned_name(prefix_name: str) -> str:
    """Return the name that the metadata has while the checkpoint is being removed."""
    return f"{prefix_name}.metadata.json.pruned"


def metadata_in_the_making(prefix_name: str) -> str:
    """Return the one name of metadata that are about to get theirs, which others may remove."""
    return f"{pending_prefix(prefix_name)}{0:016x}.tmp"


def pending_prefix(prefix_name: str) -> str:
    """Return what the names of a prefix's files begin with until they get their own."""
    # A prefix's name has as many letters here as any other's: names have at most 255 bytes.
    return f".shardproof-{hashlib.sha256(os.fsencode(prefix_name)).hexdigest()[:16]}-pending-"
