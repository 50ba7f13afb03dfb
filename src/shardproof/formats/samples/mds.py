"""MosaicML Streaming's shards: ``index.json`` states sizes, samples and mostly digests.

A shard is there as it is, or compressed, or both: the client keeps what it was told to keep.
https://github.com/mosaicml/streaming/tree/main/streaming/base/format
"""

import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from shardproof._base import digest, json
from shardproof._base.opening import files_below, read_at
from shardproof.errors import ManifestError
from shardproof.formats._format import Format
from shardproof.manifest import Manifest, Mismatch, PromisedFile

__all__ = ["FORMAT"]

_INDEX = "index.json"
_FIRST_BYTES = 2**13
_MAX_CONFIG_BYTES = 2**20
_OF_HASHES = {
    "xxh128": "xxh3-128",
    "xxh3_128": "xxh3-128",
    "xxh3_64": "xxh3-64",
    **{name: name for name in (*digest.ALGORITHMS, "xxh32", "xxh64")},
}
"""What Streaming calls an algorithm; of one that is not here nothing is proven."""

_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _MdsFile(msgspec.Struct):
    basename: str
    bytes: _Count
    hashes: dict[str, str] = {}


class _MdsShard(msgspec.Struct):
    """What the index says of a shard; only JSON lines and separated values have ``meta``."""

    format: str
    samples: _Count
    raw_data: _MdsFile
    zip_data: _MdsFile | None = None
    raw_meta: _MdsFile | None = None
    zip_meta: _MdsFile | None = None


class _MdsIndex(msgspec.Struct):
    version: int
    shards: list[_MdsShard]


class _AnyIndex(msgspec.Struct):
    shards: list[msgspec.Raw] | None = None
    version: int | None = None


def _recognizes(path: str) -> bool:
    try:
        index = json.read(path, _INDEX, _AnyIndex)
    except ManifestError:
        return _begins_as_one(path)
    return index.shards is not None and index.version is not None


def _begins_as_one(path: str) -> bool:
    """Whether what can't be read has the words of such an index: to read it says what is wrong."""
    try:
        text = json.read_bytes(path, _INDEX, max_bytes=json.MAX_BYTES)
    except ManifestError:
        return False
    return b'"shards"' in text[:1000] and b'"raw_data"' in text


def _read_manifest(path: str) -> Manifest:
    index = json.read(path, _INDEX, _MdsIndex)
    if index.version != 2:
        problem = f"expected version 2, found {index.version}"
        raise ManifestError(problem, path=os.path.join(path, _INDEX), field="$.version")
    here = {*files_below(path)}
    files = [file for shard in index.shards for file in _promises(shard, here)]
    return Manifest(
        root=Path(path), path=Path(path, _INDEX), format=FORMAT.name, files=files, probe=_probe
    )


def _promises(shard: _MdsShard, here: set[str]) -> Iterator[PromisedFile]:
    for raw, packed in ((shard.raw_data, shard.zip_data), (shard.raw_meta, shard.zip_meta)):
        kept = [file for file in (raw, packed) if file is not None and file.basename in here]
        wanted = packed or raw  # where neither is here, what the source has
        for file in kept or ([] if wanted is None else [wanted]):
            is_mds = file is shard.raw_data and shard.format == "mds"
            yield PromisedFile(
                name=file.basename,
                size=file.bytes,
                digest=_best(file.hashes),
                n_items=shard.samples if is_mds else None,
            )


def _best(hashes: Mapping[str, str]) -> str | None:
    known = ((_OF_HASHES.get(name), value) for name, value in hashes.items())
    return digest.best(f"{name}:{value}" for name, value in known if name)


def _probe(promised: PromisedFile, fd: int, size: int) -> Mismatch | None:
    """Look at the offsets of a shard: how many samples, where they begin, where the last ends.

    ``u32 n``, ``u32 offsets[n + 1]`` from the file's begin, a description in JSON, the samples.
    """
    n_samples = promised.n_items
    if n_samples is None:  # it is compressed, or of another kind
        return None
    first = read_at(fd, _FIRST_BYTES)
    found = int.from_bytes(first[:4], "little")
    end_of_offsets = 4 * (n_samples + 2)
    if found != n_samples:
        return Mismatch(expected=f"{n_samples} samples", found=f"{found} samples")
    if end_of_offsets > size:
        return Mismatch(expected=f"{n_samples + 1} offsets", found=f"{size} bytes in all")
    begin = int.from_bytes(first[4:8], "little")
    last = first if end_of_offsets <= len(first) else read_at(fd, 4, end_of_offsets - 4)
    end = int.from_bytes(last[:end_of_offsets][-4:], "little")
    if end != size:
        return Mismatch(expected=f"samples up to byte {size}", found=f"up to byte {end}")
    if not end_of_offsets <= begin <= min(size, end_of_offsets + _MAX_CONFIG_BYTES):
        expected = f"a first sample from byte {end_of_offsets} on"
        return Mismatch(expected=expected, found=f"one at byte {begin}")
    return _backwards(first[4 : min(end_of_offsets, len(first))])


def _backwards(offsets: bytes) -> Mismatch | None:
    """Return where a sample ends before it begins, among those that were read."""
    places = struct.unpack(f"<{len(offsets) // 4}I", offsets[: len(offsets) // 4 * 4])
    if list(places) == sorted(places):
        return None
    return Mismatch(expected="samples one after the other", found="offsets that go back")


FORMAT = Format(
    name="mds",
    description="samples of MosaicML Streaming: MDS, JSON lines or separated values",
    manifest_file=_INDEX,
    recognizes=_recognizes,
    read_manifest=_read_manifest,
    complete="the size of each file; of MDS how many samples it has, and where they are",
    valid="the strongest digest that the index states; by default Streaming writes none",
    blind_spots="changed samples where no digest is stated",
)
