"""Arrays of zarr, version 2 and 3: a folder for each, whose metadata say what its chunks are.

The key of a chunk is its place in the grid: ``0.0`` or ``0/0`` in version 2, ``c/0/0`` in version
3 (https://zarr-specs.readthedocs.io). A chunk that is not there is of the fill value, so that
nothing tells whether it was lost. A shard is a chunk of chunks, with an index of where they are.
Consolidated metadata are a copy of all others, in ``.zmetadata`` or in ``zarr.json`` of the root.
"""

import functools
import itertools
import math
import os
import re
from collections.abc import Mapping, Sequence, Set
from typing import Annotated, Any, NamedTuple

import msgspec

from shardproof._base import json
from shardproof._base.opening import Read, is_never_a_shard, names_in, tree
from shardproof.errors import ManifestError
from shardproof.manifest import Contradiction, Count, ExpectedFile, Manifest, Mismatch
from shardproof.probes import npy, packed
from shardproof.probes.crc32c import crc32c

_MARKS = (".zgroup", ".zarray", ".zmetadata", "zarr.json")
_METADATA = (*_MARKS, ".zattrs")
_NO_JSON = re.compile(rb"(?<=[\[:,\s])(?:NaN|-?Infinity)(?=\s*[,\]}])")
"""Numbers that Python writes into attributes."""

_UNREAD = "metadata of zarr"
_ITEM = re.compile(r"(?:u?int|b?float|complex|r)(\d{1,9})")
_KINDS = {"zlib": "zlib", "gzip": "gzip", "bz2": "bzip2", "zstd": "zstd", "blosc": "blosc"}
_ENTRY_BYTES, _CRC_BYTES, _BLOSC_BYTES = 16, 4, 16
_ITEM_BYTES = {"bool": 1, "numpy.datetime64": 8, "numpy.timedelta64": 8}
_CRC_BEHIND = {("bytes",): 0, ("bytes", "crc32c"): _CRC_BYTES}
"""By names of codecs, how much follows plain bytes."""

_CHUNK, _ALONE = re.compile(r"\d+(?:\.\d+)*"), ("metadata of an array", "its chunks alone")
_MOST_INDEX_BYTES = 2**20
_Attributes = msgspec.defstruct("_Attributes", ())
_Shape = Annotated[list[Count], msgspec.Meta(max_length=64)]
_BETWEEN = {".": r"\.", "/": "/"}  # of a key's numbers; by other texts a pattern may take forever


class _Compressor(msgspec.Struct):
    id: str


class _Others(msgspec.Struct):
    """What is consolidated, by its path."""

    metadata: dict[str, Any] = {}


class _NodeMetadata(_Others):
    """What metadata say, of version 2, then of version 3."""

    shape: _Shape = []
    chunks: _Shape = []
    dtype: Any = None
    compressor: _Compressor | None = None
    filters: list[Any] | None = None
    dimension_separator: str = "."
    node_type: str = ""
    data_type: Any = None
    chunk_grid: Any = None
    chunk_key_encoding: Any = None
    codecs: list[Any] = []
    consolidated_metadata: _Others | None = None


class _Chunks(NamedTuple):
    """The law of an array's chunks: their keys, and what each file is."""

    key: re.Pattern[str]
    size: int | None = None
    kind: str = ""
    n_inner: int = 0  # of a shard


def recognizes(path: str) -> bool:
    return not {*names_in(path)}.isdisjoint(_MARKS)


def read_manifest(path: str) -> Manifest:
    """Return the metadata and the chunks that are there, and metadata that others name."""
    sizes, chunks, damaged = dict[str, int | None](), dict[str, _Chunks](), list[Contradiction]()
    groups, alone = set[str](), set[str]()
    for here, folders, names in tree(path):
        folders[:] = itertools.filterfalse(is_never_a_shard, folders)
        folder = os.path.relpath(here, path).removeprefix(".")
        for name in (os.path.join(folder, each) for each in _METADATA if each in names):
            sizes[name] = None
            try:
                data = json.read_bytes(path, name, max_bytes=json.MAX_BYTES)
                found, listed = _read(name, data, os.path.join(path, name))
            except ManifestError as error:
                damaged.append(Contradiction(name, _UNREAD, error.problem))
                continue
            sizes |= dict.fromkeys(listed)
            chunks |= {folder: found} if found else {}
            groups |= set() if found else {folder}
        if (owner := _owner(chunks, folder)) is not None:
            below = [os.path.join(folder, each) for each in names]
            law, start = chunks[owner], len(owner) + bool(owner)
            sizes |= {name: law.size for name in below if law.key.fullmatch(name, start)}
        elif any(map(_CHUNK.fullmatch, names)) and not {*names}.intersection(_MARKS):
            alone.add(folder)
    nodes = {os.path.dirname(n) for n in sizes if alone and os.path.basename(n) in _MARKS}
    arrays = sorted({_below(nodes, folder) for folder in alone} - nodes)
    damaged += [Contradiction(each, *_ALONE) for each in arrays if os.path.dirname(each) in groups]
    files = [ExpectedFile(name=name, size=sizes[name]) for name in sorted(sizes)]
    probe = functools.partial(_probe, chunks)
    # A variable may well be called T, and another t.
    return Manifest.at(path, "", "zarr", files, probe=probe, damaged=damaged, twins=True)


def _owner(chunks: Mapping[str, _Chunks], folder: str) -> str | None:
    """Return the folder of the array that a folder is of, which it may be itself."""
    while folder and folder not in chunks:
        folder = os.path.dirname(folder)
    return folder if folder in chunks else None


def _below(nodes: Set[str], folder: str) -> str:
    """Return that of a folder and those above it which lies right below a node, or is one."""
    while folder and nodes.isdisjoint({folder, os.path.dirname(folder)}):
        folder = os.path.dirname(folder)
    return folder


def _read(name: str, data: bytes, path: str) -> tuple[_Chunks | None, Sequence[str]]:
    """Return the law of an array, if it is one, and which metadata a copy of all others names."""
    folder, file = os.path.split(name)
    kind = _Attributes if file == ".zattrs" else _NodeMetadata
    found = json.decode(_NO_JSON.sub(b"null", data), kind, path=path)
    if not isinstance(found, _NodeMetadata):
        return None, ()
    listed = [*found.metadata] if file == ".zmetadata" else []
    if (others := found.consolidated_metadata) is not None:
        listed = [f"{each}/{file}" for each in others.metadata]
    is_array = file == ".zarray" or found.node_type == "array"
    law = (_of_old if file == ".zarray" else _of_node)(found) if is_array else None
    return law, [os.path.join(folder, each) for each in listed]


def _of_old(array: _NodeMetadata) -> _Chunks:
    between = _BETWEEN.get(array.dimension_separator, "/")
    key = re.compile(between.join([r"\d+"] * max(1, len(array.shape))))
    if array.compressor is not None or array.filters:
        return _Chunks(key, kind=_KINDS.get(array.compressor.id, "") if array.compressor else "")
    n_each = npy.item_bytes(array.dtype) if isinstance(array.dtype, str) else None
    return _Chunks(key, n_each and math.prod(array.chunks) * n_each)


def _of_node(node: _NodeMetadata) -> _Chunks:
    name, settings = _named(node.chunk_key_encoding)
    is_old, parts = name == "v2", [r"\d+"] * len(node.shape)
    between = _BETWEEN.get(str(settings.get("separator", "." if is_old else "/")), "/")
    key = re.compile(between.join((parts or ["0"]) if is_old else ["c", *parts]))
    shape, n_each = _lengths(node.chunk_grid), _item_bytes(node.data_type)
    codecs = [each for each in map(_named, node.codecs) if each[0] != "transpose"]
    n_behind = _CRC_BEHIND.get(tuple(name for name, _ in codecs))
    if shape and n_each and n_behind is not None:
        return _Chunks(key, math.prod(shape) * n_each + n_behind)
    last, settings = codecs[-1] if codecs else ("", {})
    inner = _lengths({"configuration": settings}) if last == "sharding_indexed" else ()
    if shape and inner and _has_usual_index(settings):
        return _Chunks(key, kind="shard", n_inner=math.prod(map(int.__floordiv__, shape, inner)))
    return _Chunks(key, kind=_KINDS.get(last.removeprefix("numcodecs."), ""))


def _has_usual_index(settings: Mapping[str, Any]) -> bool:
    """Whether the index of a shard is at its end, with a checksum."""
    codecs = settings.get("index_codecs")
    names = [_named(each)[0] for each in codecs] if isinstance(codecs, list) else []
    return names == ["bytes", "crc32c"] and settings.get("index_location", "end") == "end"


def _named(value: object) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the settings of an extension; a text alone is a name."""
    found = value if isinstance(value, dict) else {"name": value}
    settings = found.get("configuration")
    return str(found.get("name")), settings if isinstance(settings, dict) else {}


def _lengths(grid: object) -> Sequence[int]:
    """Return the shape of all chunks; nothing where they differ, as in a rectilinear grid."""
    found = _named(grid)[1].get("chunk_shape")
    shape = found if isinstance(found, list) else []
    fits = len(shape) <= 64 and all(type(n) is int and 0 < n < 2**63 for n in shape)
    return shape if fits else []


def _item_bytes(data_type: object) -> int | None:
    name, settings = _named(data_type)
    n_bits = _ITEM.fullmatch(name)
    stated = _ITEM_BYTES.get(name, settings.get("length_bytes"))
    return int(n_bits[1]) // 8 if n_bits else stated if type(stated) is int else None


def _probe(
    chunks: Mapping[str, _Chunks], promised: ExpectedFile, read: Read, size: int
) -> Mismatch | None:
    """Return what is wrong with metadata, or with a chunk, as far as how it is packed tells."""
    folder, name = os.path.split(promised.name)
    if name in _METADATA:
        try:
            _read(name, read(min(size, json.MAX_BYTES)), "")
        except ManifestError as error:
            return Mismatch(_UNREAD, error.problem)
        return None
    law = chunks.get(_owner(chunks, folder) or "")
    if law is None or not law.kind:
        return None
    if law.kind == "shard":
        return _wrong_index(law.n_inner * _ENTRY_BYTES, read, size)
    if law.kind == "blosc":
        n_bytes = int.from_bytes(read(_BLOSC_BYTES)[12:], "little")
        expected = f"{n_bytes} bytes, as the header of blosc says"
        return None if n_bytes == size else Mismatch(expected, f"{size} bytes")
    return packed.probe(law.kind, read, size)


def _wrong_index(n_bytes: int, read: Read, size: int) -> Mismatch | None:
    """Return how the index at the end of a shard breaks its checksum."""
    n_all = n_bytes + _CRC_BYTES
    if n_all > size:
        return Mismatch(f"an index of {n_all} bytes", f"{size} bytes in all")
    data = read(n_all, size - n_all) if n_bytes <= _MOST_INDEX_BYTES else b""
    if data[n_bytes:] == crc32c(data[:n_bytes]).to_bytes(_CRC_BYTES, "little") or not data:
        return None
    return Mismatch("the index of a shard, by its checksum", "other bytes")
