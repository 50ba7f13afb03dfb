"""Name the files of a checkpoint, and pack and parse the header of a shard.

docs/checkpoint-format.md describes the format.
"""

import hashlib
import os
import re
import secrets
import struct
from typing import Literal, NamedTuple

ALIGNMENT = 64
MAX_RANK = 2**31 - 1

_MAGIC = 0x53484152
_START = struct.Struct("<Iii")
_END = struct.Struct("<iq")
_MAX_CHECKSUM = 200
_GATE = re.compile(r"\.shardproof-[0-9a-f]{16}-gate")
_OF_REMOVAL = re.compile(r"(\.shardproof-[0-9a-f]{16}-removal-)[0-9a-f]{16}(\.tmp)?")

Kind = Literal["pending", "removal", "seal"]
"""Of temporary names: a file that is whole and about to get its final name; the folder into which a
removal moves a checkpoint; the metadata of one whose shards are being looked at."""


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


def own_prefix(prefix_name: str, kind: Kind | None = None) -> str:
    """Return what the names of a prefix's temporary files begin with: all, or those of one kind.

    In them a prefix's name has as many letters as any other's: names have at most 255 bytes.
    """
    own = f".shardproof-{hashlib.sha256(os.fsencode(prefix_name)).hexdigest()[:16]}-"
    return f"{own}{kind}-" if kind else own


def gate_name(prefix_name: str) -> str:
    """Return the name of the folder in which seals and the folders of removals are.

    Who adds a shard finds them there: beside it, they would be among the shards of all ranks.
    """
    return f"{own_prefix(prefix_name)}gate"


def is_gate(name: str) -> bool:
    """Return whether a name is a `gate_name`."""
    return _GATE.fullmatch(name) is not None


def new_own_name(prefix_name: str, kind: Kind) -> str:
    """Return a new name with the `own_prefix` of a kind, in the gate unless it is pending."""
    ending = "" if kind == "removal" else ".tmp"
    name = f"{own_prefix(prefix_name, kind)}{secrets.token_hex(8)}{ending}"
    return name if kind == "pending" else f"{gate_name(prefix_name)}/{name}"


def removal_of(name: str, *, is_directory: bool) -> str:
    """Return the `own_prefix` of a removal's folder, or of a file from one; of all else nothing."""
    found = _OF_REMOVAL.fullmatch(name)
    return found[1] if found and is_directory is not bool(found[2]) else ""
