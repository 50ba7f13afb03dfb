"""MosaicML Streaming's shards: ``index.json`` states sizes, samples and mostly digests.

A shard is there as it is, or compressed, or both: the client keeps what it was told to keep.
https://github.com/mosaicml/streaming/tree/main/streaming/base/format
"""

import os
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from shardproof._base import digest, json
from shardproof._base.messages import quoted
from shardproof._base.opening import Read, files_below
from shardproof.errors import ManifestError
from shardproof.formats._reading import begin_of
from shardproof.formats.samples._offsets import FIRST_BYTES, INDEX, INDEX_BYTES, read_offsets
from shardproof.manifest import Count, ExpectedFile, Manifest, Mismatch
from shardproof.probes import packed

_BEGIN = re.compile(rb'"shards"\s*:\s*\[\s*([{\]])')
_WORDS = {b"{": b'"raw_data"', b"]": b'"version"'}  # of an index with shards, and without any
_MAX_CONFIG_BYTES = 2**20
_PACKED_BY = {".bz2": "bzip2", ".gz": "gzip", ".zstd": "zstd"}
_OF_HASHES = {
    "xxh128": "xxh3-128",
    "xxh3_128": "xxh3-128",
    "xxh3_64": "xxh3-64",
    **{name: name for name in (*digest.ALGORITHMS, "xxh32", "xxh64")},
}
"""What Streaming calls an algorithm; of one that is not here nothing is proven."""


class _MdsFile(msgspec.Struct, omit_defaults=True, gc=False):
    basename: str
    bytes: Count
    hashes: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


_MaybeFile = _MdsFile | msgspec.UnsetType | None


class _MdsShard(msgspec.Struct, omit_defaults=True):
    """What the index says of a shard; only JSON lines and separated values have ``meta``."""

    format: str
    samples: Count
    raw_data: _MdsFile
    zip_data: _MaybeFile = msgspec.UNSET
    raw_meta: _MaybeFile = msgspec.UNSET
    zip_meta: _MaybeFile = msgspec.UNSET


class _MdsIndex(msgspec.Struct):
    version: int
    shards: list[_MdsShard]


_ALSO = (
    *("column_encodings", "column_names", "column_sizes", "columns", "compression", "hashes"),
    *("newline", "separator", "size_limit", "version"),
)
"""What else Streaming writes of a shard."""

_UsualMdsShard: Any = msgspec.defstruct(
    "_UsualMdsShard",
    [(name, Any, msgspec.UNSET) for name in _ALSO],
    bases=(_MdsShard,),
    omit_defaults=True,
)
_UsualMdsIndex = msgspec.defstruct(
    "_UsualMdsIndex", [("version", int), ("shards", list[_UsualMdsShard])]
)


def recognizes(path: str) -> bool:
    begin = begin_of(path, INDEX, INDEX_BYTES)
    found = _BEGIN.search(begin)
    return found is not None and _WORDS[found[1]] in begin


def read_manifest(path: str) -> Manifest:
    index = json.read(path, INDEX, _MdsIndex, usual=_UsualMdsIndex)
    if index.version != 2:
        problem = f"expected version 2, found {index.version}"
        raise ManifestError(problem, path=os.path.join(path, INDEX), field="$.version")
    is_packed = any(shard.zip_data or shard.zip_meta for shard in index.shards)
    here = frozenset(files_below(path) if is_packed else ())
    files = [file for shard in index.shards for file in _promises(shard, here)]
    return Manifest.at(path, INDEX, "mds", files, probe=_probe)


def _promises(shard: _MdsShard, here: frozenset[str]) -> Iterator[ExpectedFile]:
    for pair in ((shard.raw_data, shard.zip_data), (shard.raw_meta, shard.zip_meta)):
        forms = [file for file in pair if file]
        kept = [file for file in forms if file.basename in here]
        for file in kept or forms[-1:]:  # where neither is here, what the source has
            is_mds = file is shard.raw_data and shard.format == "mds"
            hashes = ((_OF_HASHES.get(each), text) for each, text in (file.hashes or {}).items())
            digests = digest.provable(f"{each}:{text}" for each, text in hashes if each)
            made, n_items = ExpectedFile.by_digest(file.basename, *digests), shard.samples
            yield replace(made, size=file.bytes, n_items=n_items if is_mds else None)


def _probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Look at the offsets of a shard, and at the description in JSON that lies behind them."""
    if promised.n_items is None:  # it is compressed, or of another kind
        kind = _PACKED_BY.get(os.path.splitext(promised.name)[1])
        return packed.probe(kind, read, size) if kind else None
    offsets = read_offsets(read(FIRST_BYTES), read, size, promised.n_items)
    if isinstance(offsets, Mismatch):
        return offsets
    table_end, begin, end, behind = offsets
    if end != size:
        return Mismatch(f"samples up to byte {size}", f"up to byte {end}")
    if not table_end <= begin <= min(size, table_end + _MAX_CONFIG_BYTES):
        return Mismatch(f"a first sample from byte {table_end} on", f"one at byte {begin}")
    text, n_bytes = behind[: begin - table_end], begin - table_end
    # No reader needs it, so that whoever else writes shards may leave it out.
    if text and (text[:1] != b"{" or (len(text) == n_bytes and text[-1:] != b"}")):
        found = f"one from {quoted(text[:1])} to {quoted(text[-1:])}"
        return Mismatch(f"a JSON object from byte {table_end} to {begin}", found)
    return None
