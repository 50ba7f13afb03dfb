"""Files of checkpoints by struct, json and hashlib alone; `checkpoint_reader` reads them whole."""

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.helpers.checkpoint_reader import SIZES, hex_digest
from tests.helpers.checkpoint_reader import is_whole_checkpoint as is_whole
from tests.helpers.checkpoint_reader import read_checkpoint as read

__all__ = ["SIZES", "is_whole", "read"]

FIXED = struct.Struct("<Iii")  # magic, rank, length of the checksum
COUNTS = struct.Struct("<iq")  # number of tensors, length of the data
TAIL = 74
"""Bytes from "sha256:" to the end of a metadata file."""

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


def shard_path(prefix: str | os.PathLike[str], rank: int) -> Path:
    return Path(f"{os.fspath(prefix)}_shard_{rank}.shard")


def record_path(prefix: str | os.PathLike[str], rank: int) -> Path:
    return Path(f"{os.fspath(prefix)}_shard_{rank}.tensors.json")


def metadata_path(prefix: str | os.PathLike[str]) -> Path:
    return Path(f"{os.fspath(prefix)}.metadata.json")


def flip(path: Path, at: int = -1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def digest_of(data: bytes, checksum: str) -> str:
    """Compute the checksum of a shard's data, of the kind that another one is."""
    kind, colon, _ = checksum.rpartition(":")
    return kind + colon + hex_digest(kind or "sha256", data)


def metadata_of(prefix: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a metadata file says, which must end with its own checksum."""
    data = metadata_path(prefix).read_bytes()
    assert data == sealed(data[:-TAIL])
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
    return sealed(text[:-2])


def sealed(body: bytes) -> bytes:
    return body + b'sha256:%b"}\n' % hashlib.sha256(body).hexdigest().encode()


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether names and their order are those, and types, shapes and bytes in little endian."""
    return list(found) == list(expected) and all(
        (array.dtype, array.shape, array.tobytes()) == (one.dtype, one.shape, one.tobytes())
        for array, one in zip(found.values(), map(little_endian, expected.values()), strict=True)
    )


def tensors_of(arrays: dict[str, Any]) -> Tensors:
    """Return the bytes that the format asks for: C order, little endian."""
    return {name: little_endian(array).tobytes() for name, array in arrays.items()}


def little_endian(array: Any) -> np.ndarray:
    array = np.asarray(array)
    return array.astype(array.dtype.newbyteorder("<"), order="C")
