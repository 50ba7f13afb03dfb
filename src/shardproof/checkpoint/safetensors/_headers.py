"""Read the headers of files of safetensors, and prove that they obey every law.

The laws are those of the format's own description: a length of 8 bytes, little endian; that many
bytes of JSON that begin with ``{``; the tensors, one after the other, without a hole and without a
byte behind the last (https://huggingface.co/docs/safetensors).
"""

import contextlib
import math
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted, told
from shardproof._base.names import OPEN_FLAGS, file_type
from shardproof._base.opening import read_at
from shardproof.checkpoint.format._dtypes import ITEM_SIZES, can_be
from shardproof.checkpoint.format._metadata import (
    MAX_DIMENSIONS,
    MAX_NAME,
    MAX_NUMBER,
    TensorEntry,
    decode_json,
    refuse,
)
from shardproof.errors import CheckpointError, CheckpointNotFoundError, ManifestError

__all__ = [
    "ENDING",
    "INDEX_ENDING",
    "LENGTH",
    "MAX_HEADER_BYTES",
    "METADATA",
    "SET",
    "TYPES",
    "UNCONVERTIBLE",
    "HeaderEntry",
    "SafetensorsHeader",
    "opened",
    "read_header",
]

ENDING = ".safetensors"
INDEX_ENDING = ".safetensors.index.json"

MAX_HEADER_BYTES = 100_000_000
"""Of the JSON alone; what safetensors itself refuses to read beyond."""

LENGTH = struct.Struct("<Q")
"""The first bytes of a file: how many bytes of JSON follow."""

METADATA = "__metadata__"
"""The one name that no tensor has."""

SET = "shardproof_set"
"""The text among those of `METADATA` that all files of one set have in common."""

UNCONVERTIBLE = "tensors that can't be converted; the types that can be are {}"

TYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "C64": "complex64",
}
"""The types of elements: their names there, and in docs/checkpoint-format.md."""

_Size = Annotated[int, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class HeaderEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of one tensor in a header."""

    dtype: str
    shape: tuple[_Size, ...]
    data_offsets: tuple[_Size, _Size]


class _AnyObject(msgspec.Struct, frozen=True):
    """An object with any fields."""


class SafetensorsHeader(NamedTuple):
    """The header of a file.

    Attributes:
        tensors: In the order in which they lie there.
        of_set: The set that it is one of; nothing where it doesn't say so.
    """

    tensors: tuple[TensorEntry, ...]
    of_set: str


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a regular file, and close it in the end; through links, of which hubs' caches are full.

    Raises:
        CheckpointError: There is none, or something else.
        OSError: It can't be opened.
    """
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):  # opening a FIFO may wake its writer
            problem = f"expected a regular file, found a {file_type(mode)}"
            raise CheckpointError(problem, path=path)
        fd = os.open(path, OPEN_FLAGS & ~os.O_NOFOLLOW)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointNotFoundError("there is no such file", path=path) from error
    try:
        yield fd
    finally:
        os.close(fd)


def read_header(fd: int, path: str) -> SafetensorsHeader:
    """Read the header of a file, and prove that it obeys every law.

    It needs memory for the header that is really there, and for at most `json.MAX_ITEMS` values
    in it.

    Raises:
        CheckpointError: A law is broken, or a type has no counterpart; all such tensors are listed.
        OSError: It can't be read.
    """
    size = os.fstat(fd).st_size
    text = _header_text(fd, size, path)
    entries, texts = _decoded(text, path)
    refuse(UNCONVERTIBLE.format(", ".join(TYPES)), _without_counterpart(entries), path=path)
    start = LENGTH.size + len(text)
    laws = _broken_laws(entries, size - start)
    refuse("its header contradicts itself", laws, path=path)
    tensors = [
        TensorEntry(name, TYPES[entry.dtype], entry.shape, start + begin, end - begin, None)
        for name, entry in entries.items()
        for begin, end in [entry.data_offsets]
    ]
    in_order = sorted(tensors, key=lambda tensor: (tensor.offset, tensor.size))
    return SafetensorsHeader(tuple(in_order), texts.get(SET, ""))


def _header_text(fd: int, size: int, path: str) -> bytes:
    """Return the JSON; no room is made for what the file's own size doesn't allow for."""
    start = read_at(fd, LENGTH.size + 1)
    if len(start) <= LENGTH.size:
        problem = f"expected a header of safetensors, found a file of {len(start)} bytes"
        raise CheckpointError(problem, path=path)
    (length,) = LENGTH.unpack_from(start)
    if length > MAX_HEADER_BYTES:
        problem = f"expected a header of at most {MAX_HEADER_BYTES} bytes, found {length}"
        raise CheckpointError(f"{problem}: it is no file of safetensors", path=path)
    if not start.endswith(b"{"):
        problem = f"expected a header that begins with '{{', found {quoted(start[-1:])}"
        raise CheckpointError(f"{problem}: it is no file of safetensors", path=path)
    text = read_at(fd, length, LENGTH.size) if LENGTH.size + length <= size else b""
    if len(text) != length:
        found = max(size - LENGTH.size, 0)
        problem = f"expected a header of {length} bytes, found {found}: it is cut short"
        raise CheckpointError(problem, path=path)
    return text


def _decoded(text: bytes, path: str) -> tuple[dict[str, HeaderEntry], dict[str, str]]:
    """Return the entries of tensors, and the texts among them that are about the file."""
    decode_json(text, _AnyObject, path=path)  # proves that no key stands twice
    raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    metadata = raw.pop(METADATA, None)
    texts: dict[str, str] = {}
    if metadata is not None:
        try:
            texts = msgspec.json.decode(bytes(metadata), type=dict[str, str])
        except msgspec.ValidationError as error:
            problem = f"{METADATA}: expected texts by their names: {told(error)}"
            raise CheckpointError(problem, path=path) from None
    entries = {}
    for name, data in raw.items():
        try:
            entries[name] = json.decode(bytes(data), HeaderEntry, path=path)
        except ManifestError as error:
            field = f", field {error.field}" if error.field else ""
            problem = f"tensor {quoted(name)}{field}: {error.problem}"
            raise CheckpointError(problem, path=path) from error
    return entries, texts


def _without_counterpart(entries: Mapping[str, HeaderEntry]) -> Iterator[str]:
    for name, entry in entries.items():
        if entry.dtype not in TYPES:
            yield f"{quoted(name)}: found the type {quoted(entry.dtype)}"
        n_letters, n_dimensions = len(name), len(entry.shape)
        if not 0 < n_letters <= MAX_NAME:
            yield f"{quoted(name)}: expected 1 to {MAX_NAME} characters, found {n_letters}"
        if n_dimensions > MAX_DIMENSIONS:
            expected = f"at most {MAX_DIMENSIONS} dimensions"
            yield f"{quoted(name)}: expected {expected}, found {n_dimensions}"


def _broken_laws(entries: Mapping[str, HeaderEntry], n_bytes: int) -> Iterator[str]:
    """Yield what is wrong about sizes and places; ``n_bytes`` follow the header."""
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        size = math.prod(entry.shape) * ITEM_SIZES[TYPES[entry.dtype]]
        if not can_be(entry.shape, TYPES[entry.dtype]):
            shown = quoted(str(entry.shape))
            yield f"{quoted(name)}: expected lengths that an array can have, found {shown}"
        if begin != at:
            yield f"{quoted(name)}: expected it to begin at {at}, where others end, found {begin}"
        if end - begin != size:
            yield f"{quoted(name)}: expected {size} bytes by dtype and shape, found {end - begin}"
        at = max(at, end)
    if at != n_bytes:
        yield f"expected {at} bytes behind the header, found {n_bytes}"
