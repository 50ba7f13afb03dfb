"""A second reader of checkpoints: slow, all in memory, and without a line of the library."""

import hashlib
import json
import math
import os
import stat
import struct
from pathlib import Path
from typing import Any

import xxhash

MAGIC = 0x53484152
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

_FIELDS = {"schema_version", "world_size", "step", "timestamp", "sharding", "shards", "checksum"}
_SHARDING = {"strategy", "shard_count", "precision"}
_SHARD = {"rank", "file", "file_size", "checksum", "tensors"}
_TENSOR = {"name", "dtype", "shape", "offset", "size", "digest"}


def is_whole_checkpoint(prefix: str | os.PathLike[str], *, level: str = "valid") -> bool:
    """Return whether a checkpoint is whole, as it lies on disk."""
    try:
        _read(Path(prefix), level)
    except (OSError, ValueError):
        return False
    return True


def read_checkpoint(prefix: str | os.PathLike[str]) -> list[dict[str, bytes]]:
    """Return the bytes of all tensors by name, rank by rank, once everything is proven."""
    document, shards = _read(Path(prefix), "valid")
    return [
        {
            tensor["name"]: shard[tensor["offset"] : tensor["offset"] + tensor["size"]]
            for tensor in entry["tensors"]
        }
        for entry, shard in zip(document["shards"], shards, strict=True)
    ]


def _read(prefix: Path, level: str) -> tuple[dict[str, Any], list[bytes]]:
    metadata = prefix.with_name(f"{prefix.name}.metadata.json")
    document, shards = _lawful(_content(metadata), prefix.name), []
    for entry in document["shards"]:
        shard = _content(prefix.parent / entry["file"])
        _demand(len(shard) > 0, "a shard", "0 bytes")
        checksum, n_tensors = entry["checksum"].encode(), len(entry["tensors"])
        if level != "present":
            _demand(len(shard) == entry["file_size"], f"{entry['file_size']} bytes", len(shard))
            n_data = entry["file_size"] - 24 - len(checksum)
            numbers = MAGIC, entry["rank"], len(checksum), checksum, n_tensors, n_data
            header = struct.pack(f"<Iii{len(checksum)}siq", *numbers)
            _demand(shard.startswith(header), f"header {header!r}", shard[: len(header)])
        if level == "valid":
            kind, _, digits = entry["checksum"].rpartition(":")
            found = hex_digest(kind or "sha256", shard[24 + len(checksum) :])
            _demand(found == digits, f"checksum {digits!r}", "another")
            end = 24 + len(checksum)
            for tensor in entry["tensors"]:
                padding = shard[end : tensor["offset"]]
                _demand(not any(padding), "zeros between tensors", padding)
                end = tensor["offset"] + tensor["size"]
                kind, _, digits = (tensor["digest"] or "").partition(":")
                content = shard[tensor["offset"] : tensor["offset"] + tensor["size"]]
                found = hex_digest(kind, content) if kind else digits
                _demand(found == digits, f"digest {digits}", tensor["name"])
        shards.append(shard)
    return document, shards


def _content(path: Path) -> bytes:
    real, directory = _real(path), _real(path.parent)
    _demand(os.path.dirname(real) == directory, f"a file in {directory}", real)
    # Before it is opened: that of a named pipe may take for ever.
    _demand(stat.S_ISREG(os.stat(real).st_mode), "a regular file", real)
    return Path(real).read_bytes()


def _real(path: Path) -> str:
    return os.path.realpath(path, strict=True)


def _lawful(text: bytes, prefix: str) -> dict[str, Any]:
    """Return what is in the metadata file of a prefix; a broken law is a ValueError."""
    seal = b'sha256:%b"}\n' % hashlib.sha256(text[:-74]).hexdigest().encode()
    _demand(text.endswith(seal), f"{seal!r} at the end", text[-74:])

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _demand(len(dict(pairs)) == len(pairs), "each key once", [key for key, _ in pairs])
        return dict(pairs)

    document: dict[str, Any] = json.loads(text, object_pairs_hook=once)
    _demand_fields(document, _FIELDS)
    _demand_fields(document["sharding"], _SHARDING)
    _demand(document["schema_version"] == 1, "schema_version 1", document["schema_version"])
    numbers = document["world_size"], document["sharding"]["shard_count"]
    n_shards = len(document["shards"])
    _demand(numbers == (n_shards, n_shards) != (0, 0), f"{n_shards} shards", numbers)
    for rank, shard in enumerate(document["shards"]):
        _demand_shard(shard, rank, prefix)
    return document


def _demand(is_so: bool, what: str, found: object = "") -> None:
    if not is_so:
        raise ValueError(f"expected {what}, found {found!r}")


def _demand_fields(document: dict[str, Any], fields: set[str]) -> None:
    _demand(document.keys() == fields, f"fields {fields}", [*document])


def _demand_shard(shard: dict[str, Any], rank: int, prefix: str) -> None:
    _demand_fields(shard, _SHARD)
    name, end = f"{prefix}_shard_{rank}.shard", 24 + len(shard["checksum"])
    _demand(shard["rank"] == rank, f"rank {rank}", shard["rank"])
    _demand(shard["file"] == name, f"file {name}", shard["file"])
    for tensor in shard["tensors"]:
        _demand_fields(tensor, _TENSOR)
        _demand(tensor["dtype"] in SIZES, "a dtype", tensor["dtype"])
        size = math.prod(tensor["shape"]) * SIZES[tensor["dtype"]]
        _demand(tensor["size"] == size, f"size {size}", tensor["size"])
        offset = (end + 63) // 64 * 64
        _demand(tensor["offset"] == offset, f"offset {offset}", tensor["offset"])
        end = offset + size
    names = {tensor["name"] for tensor in shard["tensors"]}
    _demand(len(names) == len(shard["tensors"]), "each name once", sorted(names))
    _demand(shard["file_size"] == end, f"file_size {end}", shard["file_size"])


def hex_digest(algorithm: str, data: bytes) -> str:
    """Return a digest by one of the format's algorithms."""
    if algorithm == "sha256":
        return hashlib.sha256(data).hexdigest()
    if algorithm == "blake3":
        from blake3 import blake3

        return blake3(data).hexdigest()
    if algorithm == "xxh3-128":
        return xxhash.xxh3_128_hexdigest(data)
    assert algorithm == "sha256-tree"
    leaves = [data[start : start + 2**20] for start in range(0, len(data), 2**20)]
    tree = b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)
    return hashlib.sha256(tree).hexdigest()
