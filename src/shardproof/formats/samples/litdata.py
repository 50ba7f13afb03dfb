"""LitData's chunks: ``index.json`` states how many samples and bytes each has.

https://github.com/Lightning-AI/litData/tree/main/src/litdata/streaming
"""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from shardproof._base import json
from shardproof._base.messages import quoted
from shardproof._base.opening import read_at
from shardproof.errors import ManifestError
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, Mismatch, Probe, PromisedFile
from shardproof.probes import parquet

__all__ = ["FORMAT"]

_INDEX = "index.json"
_ZSTD = b"\x28\xb5\x2f\xfd"
_FRAMED, _WITH_ARROW = b"LDFZ01\0\0", b"LDARW01\0"
_KNOWN_LEVELS = {None, "batch", "chunk", "sample"}

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _LitChunk(msgspec.Struct):
    filename: str
    chunk_bytes: _Count
    chunk_size: _Count
    dim: _Count | None = None


class _LitEncryption(msgspec.Struct):
    level: str | None = None


class _LitConfig(msgspec.Struct):
    compression: str | None = None
    compression_level: str | None = None
    encryption: _LitEncryption | None = None
    item_loader: str | None = None


class _LitIndex(msgspec.Struct):
    chunks: list[_LitChunk]
    config: _LitConfig


class _AnyChunks(msgspec.Struct):
    chunks: list[msgspec.Raw] | None = None


def _recognizes(path: str) -> bool:
    try:
        return json.read(path, _INDEX, _AnyChunks).chunks is not None
    except ManifestError:
        return _begins_as_one(path)


def _begins_as_one(path: str) -> bool:
    """Whether what can't be read has the words of such an index: to read it says what is wrong."""
    try:
        text = json.read_bytes(path, _INDEX, max_bytes=json.MAX_BYTES)
    except ManifestError:
        return False
    return b'"chunk_bytes"' in text or text.startswith(b'{"chunks"')


def _read_manifest(path: str) -> Manifest:
    index = json.read(path, _INDEX, _LitIndex)
    config = index.config
    if config.compression_level not in _KNOWN_LEVELS:
        where, found = os.path.join(path, _INDEX), quoted(config.compression_level)
        problem = f"chunks compressed by the level {found} are not known here"
        raise ManifestError(problem, path=where, field="$.config.compression_level")
    is_parquet = config.item_loader == "ParquetLoader"
    packed = f".{config.compression}.bin" if config.compression else None
    files = [
        PromisedFile(
            name=chunk.filename,
            # Of a file that is compressed as a whole, the size before that is stated.
            size=None if packed and chunk.filename.endswith(packed) else chunk.chunk_bytes,
            n_items=chunk.chunk_size,
        )
        for chunk in index.chunks
    ]
    probe: Probe | None = parquet.probe if is_parquet else _probe
    if config.encryption is not None and config.encryption.level != "sample":
        probe = None  # its bytes tell nothing
    return Manifest(
        root=Path(path), path=Path(path, _INDEX), format=FORMAT.name, files=files, probe=probe
    )


def _probe(promised: PromisedFile, fd: int, size: int) -> Mismatch | None:
    """Look at the offsets of a chunk; of a compressed file at its first bytes.

    ``u32 n``, ``u32 offsets[n + 1]`` from the file's begin, the samples; behind or in place of
    these there may be rows in Arrow's format, with a mark at the end.
    """
    head = read_at(fd, 8)
    if promised.size is None:
        is_zstd = promised.name.endswith(".bin") and ".zstd" in promised.name
        if is_zstd and head[:4] != _ZSTD:
            return Mismatch(expected="bytes of zstd", found=quoted(head[:4]))
        return None
    if head == _FRAMED:
        return None
    n_samples, begin = (int.from_bytes(head[at : at + 4], "little") for at in (0, 4))
    if n_samples != promised.n_items:
        expected = f"{promised.n_items} samples"
        return Mismatch(expected=expected, found=f"{n_samples} samples")
    end_of_offsets = 4 * (n_samples + 2)
    end = int.from_bytes(read_at(fd, 4, end_of_offsets - 4), "little")
    if begin == end_of_offsets and (end == size or (end < size and _has_arrow(fd, size))):
        return None
    expected = f"samples from byte {end_of_offsets} to {size}"
    return Mismatch(expected=expected, found=f"from byte {begin} to {end}")


def _has_arrow(fd: int, size: int) -> bool:
    return read_at(fd, len(_WITH_ARROW), max(0, size - len(_WITH_ARROW))) == _WITH_ARROW


FORMAT = Format(
    name="litdata",
    description="chunks of LitData",
    manifest_file=_INDEX,
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="the size of each chunk, how many samples it has and where they are; of compressed "
    "chunks their first bytes",
    valid="nothing more: the format states no digest; seal it",
    blind_spots="changed samples; a cut in a chunk that is compressed as a whole, since its size "
    "is not written down",
)
