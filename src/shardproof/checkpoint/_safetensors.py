"""Read headers of files of safetensors, and prove the laws of huggingface.co/docs/safetensors."""

import contextlib
import math
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from shardproof._base import json
from shardproof._base.liveness import Mark, mark_of
from shardproof._base.messages import quoted, told
from shardproof._base.names import NotRegularError, open_followed
from shardproof._base.opening import closing_fd, read_at
from shardproof.checkpoint import _format
from shardproof.checkpoint._format import TensorEntry
from shardproof.errors import CheckpointError, CheckpointNotFoundError, ManifestError

ENDING = ".safetensors"
INDEX_ENDING = ".safetensors.index.json"

MAX_HEADER_BYTES = 100_000_000  # of the JSON alone: safetensors itself reads no more
LENGTH = struct.Struct("<Q")  # the first bytes of a file: how many bytes of JSON follow
METADATA = "__metadata__"  # the one name that no tensor has
SET = "shardproof_set"  # the text among those of the metadata that all files of a set share

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


class HeaderEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of one tensor in a header."""

    dtype: str
    shape: tuple[_format.Count, ...]
    data_offsets: tuple[_format.Count, _format.Count]


class _AnyObject(msgspec.Struct, frozen=True):
    """An object with any fields."""


class SafetensorsFile(NamedTuple):
    """A file whose header was read and proven: its tensors in the order in which they lie there."""

    path: str
    tensors: tuple[TensorEntry, ...]
    of_set: str
    stamp: Mark


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a regular file, and close it in the end; through links, as hubs' caches have them."""
    try:
        fd = open_followed(path)
    except NotRegularError as error:
        problem = f"expected a regular file, found a {error.found}"
        raise CheckpointError(problem, path=path) from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointNotFoundError("there is no such file", path=path) from error
    with closing_fd(fd):
        yield fd


def read_header(path: str) -> SafetensorsFile:
    """Read the header of a file, and prove that it obeys every law, or list each that it breaks."""
    with opened(path) as fd:
        status = os.fstat(fd)
        size, stamp = status.st_size, mark_of(status)
        text = _header_text(fd, size, path)
    entries, texts = _decoded(text, path)
    problems = []
    for name, entry in entries.items():
        where, n, axes = quoted(name), len(name), len(entry.shape)
        if entry.dtype not in TYPES:
            problems.append(f"{where}: found the type {quoted(entry.dtype)}")
        if not 0 < n <= _format.MAX_NAME:
            problems.append(f"{where}: expected 1 to {_format.MAX_NAME} characters, found {n}")
        if axes > _format.MAX_DIMENSIONS:
            expected = f"expected at most {_format.MAX_DIMENSIONS} dimensions"
            problems.append(f"{where}: {expected}, found {axes}")
    _format.refuse(UNCONVERTIBLE.format(", ".join(TYPES)), problems, path=path)
    tensors, at, start = [], 0, LENGTH.size + len(text)
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        where, dtype, (begin, end) = quoted(name), TYPES[entry.dtype], entry.data_offsets
        n_bytes = math.prod(entry.shape) * _format.ITEM_SIZES[dtype]
        if not _format.can_be(entry.shape, dtype):
            found = quoted(str(entry.shape))
            problems.append(f"{where}: expected lengths that an array can have, found {found}")
        if begin != at:
            problem = f"expected it to begin at {at}, where others end, found {begin}"
            problems.append(f"{where}: {problem}")
        if end - begin != n_bytes:
            found = f"found {end - begin}"
            problems.append(f"{where}: expected {n_bytes} bytes by dtype and shape, {found}")
        tensors.append(TensorEntry(name, dtype, entry.shape, start + begin, n_bytes, None))
        at = max(at, end)
    if at != size - start:
        problems.append(f"expected {at} bytes behind the header, found {size - start}")
    _format.refuse("its header contradicts itself", problems, path=path)
    return SafetensorsFile(path, tuple(tensors), texts.get(SET, ""), stamp)


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
    _format.decode_json(text, _AnyObject, path=path)  # proves that no key stands twice
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
