"""Checkpoints read with struct, json and hashlib alone: what judges the code shares none of it."""

import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FIXED = struct.Struct("<Iii")  # magic, rank, length of the checksum
COUNTS = struct.Struct("<iq")  # number of tensors, length of the data
MAGIC = 0x53484152
TAIL = 74
"""Bytes from "sha256:" to the end of a metadata file."""

SIZES = {
    "bool": 1,
    **{f"{sign}int{8 * n}": n for n in (1, 2, 4, 8) for sign in ("", "u")},
    **{f"float{8 * n}": n for n in (2, 4, 8)},
    "complex64": 8,
    "complex128": 16,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}
"""The format's names of dtypes with their bytes."""

Tensors = dict[str, bytes]


class Header(NamedTuple):
    magic: int
    rank: int
    checksum: str
    n_tensors: int
    n_data: int
    size: int
    """Bytes of the header itself."""


def header_of(data: bytes) -> Header:
    magic, rank, length = FIXED.unpack_from(data)
    at = FIXED.size
    checksum = data[at : at + length].decode()
    n_tensors, n_data = COUNTS.unpack_from(data, at + length)
    return Header(magic, rank, checksum, n_tensors, n_data, at + length + COUNTS.size)


def header_bytes(
    rank: int, checksum: str, n_tensors: int, n_data: int, magic: int = MAGIC
) -> bytes:
    text = checksum.encode()
    return FIXED.pack(magic, rank, len(text)) + text + COUNTS.pack(n_tensors, n_data)


def aligned(offset: int) -> int:
    return -(-offset // 64) * 64


def shard_path(prefix: str | os.PathLike[str], rank: int) -> Path:
    return Path(f"{os.fspath(prefix)}_shard_{rank}.shard")


def record_path(prefix: str | os.PathLike[str], rank: int) -> Path:
    return Path(f"{os.fspath(prefix)}_shard_{rank}.tensors.json")


def metadata_path(prefix: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(prefix)}.metadata.json")


def digest_of(data: bytes, checksum: str) -> str:
    """Compute the checksum of a shard's data, of the kind that another one is."""
    algorithm, _, digits = checksum.rpartition(":")
    assert len(digits) == 64
    if algorithm == "blake3":
        from blake3 import blake3

        return f"blake3:{blake3(data).hexdigest()}"
    if algorithm == "sha256-tree":
        leaves = [data[at : at + 2**20] for at in range(0, len(data), 2**20)]
        root = b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)
        return f"sha256-tree:{hashlib.sha256(root).hexdigest()}"
    assert not algorithm
    return hashlib.sha256(data).hexdigest()


def metadata_of(prefix: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a metadata file says, which must end with its own checksum."""
    data = metadata_path(prefix).read_bytes()
    body, tail = data[:-TAIL], data[-TAIL:]
    assert tail == b'sha256:%b"}\n' % hashlib.sha256(body).hexdigest().encode()
    said = json.loads(data)
    assert list(said)[-1] == "checksum"
    return said


def signed(said: dict[str, Any]) -> bytes:
    """Return the bytes of a metadata file, with its own checksum whatever it says."""
    rest = {name: value for name, value in said.items() if name != "checksum"}
    return sign(json.dumps({**rest, "checksum": ""}).encode())


def sign(text: bytes) -> bytes:
    """Fill in the checksum of a JSON object whose last field is an empty one."""
    assert text.endswith(b'"checksum": ""}')
    body = text[:-2]
    return body + b'sha256:%b"}\n' % hashlib.sha256(body).hexdigest().encode()


def read(prefix: str | os.PathLike[str]) -> list[Tensors]:
    """Return the bytes of all tensors by rank; fails at whatever isn't as the format says."""
    said = metadata_of(prefix)
    assert said["schema_version"] == 1
    assert said["world_size"] == said["sharding"]["shard_count"] == len(said["shards"])
    return [_read_shard(prefix, rank, entry) for rank, entry in enumerate(said["shards"])]


def _read_shard(prefix: str | os.PathLike[str], rank: int, entry: dict[str, Any]) -> Tensors:
    path = shard_path(prefix, rank)
    data = path.read_bytes()
    header = header_of(data)
    assert header[:2] == (MAGIC, rank)
    assert entry["rank"] == rank
    assert entry["file"] == path.name
    assert entry["file_size"] == len(data) == header.size + header.n_data
    assert entry["checksum"] == header.checksum == digest_of(data[header.size :], header.checksum)
    assert len(entry["tensors"]) == header.n_tensors
    end, found = header.size, {}
    for tensor in entry["tensors"]:
        offset = aligned(end)
        assert data[end:offset] == bytes(offset - end)
        size = math.prod(tensor["shape"]) * SIZES[tensor["dtype"]]
        assert (tensor["offset"], tensor["size"]) == (offset, size)
        end = offset + size
        found[tensor["name"]] = data[offset:end]
    assert end == len(data)
    assert len(found) == header.n_tensors
    return found


def is_whole(prefix: str | os.PathLike[str]) -> bool:
    """Whether a checkpoint is all that the format asks for, found out without the code."""
    try:
        read(prefix)
    except (
        AssertionError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        ArithmeticError,
        struct.error,
    ):
        return False
    return True


def tensors_of(arrays: dict[str, Any]) -> Tensors:
    """Return the bytes that the format asks for: C order, little endian."""
    return {name: little_endian(array).tobytes() for name, array in arrays.items()}


def little_endian(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder("<"), order="C")
