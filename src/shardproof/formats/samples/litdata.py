"""LitData's chunks: ``index.json`` states how many samples and bytes each has.

Old writers (until 0.2.39 at least) state the bytes of the samples, newer ones (from 0.2.44 on)
those of the file. A chunk that is compressed as a whole is unpacked by its reader, which may leave
only what it unpacked.
https://github.com/Lightning-AI/litData/tree/main/src/litdata/streaming
"""

import functools
import os
import re
import struct
from typing import Any

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import Read, names_in
from shardproof.errors import ManifestError
from shardproof.formats._reading import begin_of
from shardproof.formats.samples._offsets import FIRST_BYTES, INDEX, INDEX_BYTES, read_offsets
from shardproof.manifest import Count, ExpectedFile, Manifest, Mismatch
from shardproof.probes import packed, parquet

_BEGIN = re.compile(rb'"chunks"\s*:\s*\[')
_WORD = b'"chunk_bytes"'

_FRAMED, _WITH_ARROW = b"LDFZ01\0\0", b"LDARW01\0"
_FRAMES = struct.Struct("<8sHHIII")
_FRAME = struct.Struct("<8xQI4x")
_ARROW_END = struct.Struct("<I8s")
_PARQUET = "ParquetLoader"
_KNOWN_LEVELS = {None, "batch", "chunk", "sample", msgspec.UNSET}


class _LitChunk(msgspec.Struct, omit_defaults=True, gc=False):
    filename: str
    chunk_bytes: Count
    chunk_size: Count
    dim: Any = msgspec.UNSET


class _LitEncryption(msgspec.Struct):
    level: str | None = None


class _LitConfig(msgspec.Struct):
    compression: str | None = None
    compression_level: str | msgspec.UnsetType | None = msgspec.UNSET
    encryption: _LitEncryption | None = None
    item_loader: str | None = None


class _LitIndex(msgspec.Struct):
    chunks: list[_LitChunk]
    config: _LitConfig
    updated_at: Any = msgspec.UNSET


class _UsualLitIndex(_LitIndex, omit_defaults=True):
    """All that LitData writes: a long index is read a second time without much memory."""

    config: Any


def recognizes(path: str) -> bool:
    begin = begin_of(path, INDEX, INDEX_BYTES)
    return _BEGIN.search(begin) is not None and _WORD in begin


def read_manifest(path: str) -> Manifest:
    index = json.read(path, INDEX, _LitIndex, usual=_UsualLitIndex)
    compression, level = index.config.compression, index.config.compression_level
    if level not in _KNOWN_LEVELS:
        problem = f"chunks compressed by the level {quoted(level)} are not known here"
        field = "$.config.compression_level"
        raise ManifestError(problem, path=os.path.join(path, INDEX), field=field)
    here = frozenset(names_in(path) if compression else ())
    states_size = _states_size(index)
    files, stated = [], dict[str, int]()
    for chunk in index.chunks:
        for name, is_packed in _forms(chunk.filename, compression, here):
            n_items = None if is_packed else chunk.chunk_size
            size = chunk.chunk_bytes if states_size and not is_packed else None
            files.append(ExpectedFile(name=name, size=size, n_items=n_items))
            if not states_size:
                stated[name] = chunk.chunk_bytes
    encryption, probe = index.config.encryption, None
    if encryption is None or encryption.level == "sample":  # else its bytes tell nothing
        is_parquet = index.config.item_loader == _PARQUET
        probe = parquet.probe if is_parquet else functools.partial(_probe, stated)
    return Manifest.at(path, INDEX, "litdata", files, probe=probe)


def _states_size(index: _LitIndex) -> bool:
    """Whether the bytes that are stated of a chunk are surely those of its file."""
    # Only newer writers know levels of compression. An index that was merged has the first data
    # set's config, whoever wrote the others, but no time.
    config = index.config
    has_levels = config.compression_level is not msgspec.UNSET
    is_recent = has_levels and index.updated_at is not msgspec.UNSET
    is_encrypted = config.encryption is not None and config.encryption.level == "chunk"
    return is_recent or is_encrypted or config.item_loader == _PARQUET


def _forms(name: str, compression: str | None, here: frozenset[str]) -> list[tuple[str, bool]]:
    """Return the names under which a chunk is here, or the index's, and whether each is packed."""
    packed = f".{compression}.bin"
    if not compression or not name.endswith(packed):
        return [(name, False)]
    forms = [(name, True), (f"{name.removesuffix(packed)}.bin", False)]
    return [form for form in forms if form[0] in here] or forms[:1]


def _probe(
    stated: dict[str, int], promised: ExpectedFile, read: Read, size: int
) -> Mismatch | None:
    """Look at a chunk: its offsets, and rows of Arrow behind; of a packed one its blocks."""
    # Of old writers, ``stated`` are the bytes of each file or of its samples alone.
    first, n_samples = read(FIRST_BYTES), promised.n_items
    if n_samples is None:
        return packed.probe("zstd", read, size) if ".zstd" in promised.name else None
    if first.startswith(_FRAMED):
        return _look_at_frames(first, read, size, n_samples)
    offsets = read_offsets(first, read, size, n_samples)
    if isinstance(offsets, Mismatch):
        return offsets
    table_end, begin, end, _ = offsets
    if begin != table_end or (end != size and not _has_arrow(read, size, end)):
        return Mismatch(f"samples from byte {table_end} to {size}", f"from byte {begin} to {end}")
    n_bytes = stated.get(promised.name, size)
    if size - n_bytes in {0, table_end}:
        return None
    return Mismatch(f"{n_bytes} bytes, or {table_end} more", f"{size} bytes")


def _look_at_frames(first: bytes, read: Read, size: int, n_samples: int) -> Mismatch | None:
    """Look at a chunk of compressed frames: how many samples it has, where the last frame ends."""
    # Behind the header lie ``u32 offsets[n + 1]`` of what is unpacked, then where each frame lies.
    if len(first) < _FRAMES.size:
        return Mismatch(f"{_FRAMES.size} bytes", f"{size} bytes")
    _, version, _, found, _, n_frames = _FRAMES.unpack_from(first)
    if version != 1:
        return None
    if found != n_samples:
        return Mismatch(f"{n_samples} samples", f"{found} samples")
    frame = read(_FRAME.size, _FRAMES.size + 4 * (n_samples + 1) + _FRAME.size * (n_frames - 1))
    begin, n_bytes = _FRAME.unpack(frame) if len(frame) == _FRAME.size else (0, 0)
    if begin + n_bytes == size:
        return None
    return Mismatch(f"frames up to byte {size}", f"up to byte {begin + n_bytes}")


def _has_arrow(read: Read, size: int, end: int) -> bool:
    """Whether rows in Arrow's format fill a file from a byte on; their length stands behind."""
    n_bytes = size - _ARROW_END.size - end
    if not 0 < n_bytes < 2**32:
        return False
    return read(_ARROW_END.size, end + n_bytes) == _ARROW_END.pack(n_bytes, _WITH_ARROW)
