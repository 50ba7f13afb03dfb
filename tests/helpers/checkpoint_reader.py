"""A second reader of checkpoints: slow, all in memory, and without a line of the library."""

import hashlib
import json
import math
import os
import re
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
_MAX_BYTES = 64 * 2**20
_SEAL = re.compile(rb'sha256:([0-9a-f]{64})"\}\n')
_CHECKSUM = re.compile(r"|(blake3:|sha256-tree:)?[0-9a-f]{64}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?Z")
_DIGEST = re.compile(r"xxh3-128:[0-9a-f]{32}|(sha256|blake3):[0-9a-f]{64}")

_METADATA = {
    "schema_version": int,
    "world_size": int,
    "step": int,
    "timestamp": str,
    "sharding": dict,
    "shards": list,
    "checksum": str,
}
_SHARDING = {"strategy": str, "shard_count": int, "precision": str}
_SHARD = {"rank": int, "file": str, "file_size": int, "checksum": str, "tensors": list}
_TENSOR: dict[str, Any] = {"name": str, "dtype": str, "shape": list, "offset": int, "size": int}
_TENSOR["digest"] = (str, type(None))


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
    document, shards = lawful_metadata(_content(metadata), prefix.name), []
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


def lawful_metadata(text: bytes, prefix: str) -> dict[str, Any]:
    """Return what is in the metadata file of a prefix; a broken law is a ValueError."""
    _demand(len(text) <= _MAX_BYTES, "64 MiB or less", len(text))
    seal = _SEAL.fullmatch(text[-74:])
    digest = hashlib.sha256(text[:-74]).hexdigest().encode()
    _demand(seal is not None and seal[1] == digest, f"checksum {digest!r} at the end", text[-74:])

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        _demand(len(dict(pairs)) == len(pairs), "each key once", [key for key, _ in pairs])
        return dict(pairs)

    def refuse(number: str) -> None:
        _demand(False, "integers", number)

    try:
        document: dict[str, Any] = json.loads(
            text.decode("utf-8"), object_pairs_hook=once, parse_constant=refuse, parse_float=refuse
        )
    except RecursionError as error:
        raise ValueError("expected JSON, found one nested too deeply") from error
    _refuse_fields(document, _METADATA)
    world_size, sharding = document["world_size"], document["sharding"]
    _demand(document["schema_version"] == 1, "schema_version 1", document["schema_version"])
    _demand(bool(_TIME.fullmatch(document["timestamp"])), "a time", document["timestamp"])
    _demand(document["step"] >= 0, "step 0 or more", document["step"])
    _demand(world_size >= 1, "world_size 1 or more", world_size)
    _demand(len(document["shards"]) == world_size, f"{world_size} shards", len(document["shards"]))
    _refuse_fields(sharding, _SHARDING)
    _demand(sharding["shard_count"] == world_size, f"{world_size} shards", sharding["shard_count"])
    for rank, shard in enumerate(document["shards"]):
        _refuse_shard(shard, rank, prefix)
    return document


def _demand(is_so: bool, what: str, found: object = "") -> None:
    if not is_so:
        raise ValueError(f"expected {what}, found {found!r}")


def _refuse_fields(document: Any, fields: dict[str, Any]) -> None:
    _demand(type(document) is dict, "an object", type(document))
    _demand(document.keys() == fields.keys(), f"fields {[*fields]}", [*document])
    for name, types in fields.items():
        allowed = types if isinstance(types, tuple) else (types,)
        _demand(type(document[name]) in allowed, f"{name} of type {types}", type(document[name]))
        if type(document[name]) is str:
            document[name].encode()  # half of a surrogate pair is a UnicodeError, a ValueError


def _refuse_shard(shard: Any, rank: int, prefix: str) -> None:
    _refuse_fields(shard, _SHARD)
    checksum, tensors = shard["checksum"], shard["tensors"]
    name = f"{prefix}_shard_{rank}.shard"
    _demand(shard["rank"] == rank, f"rank {rank}", shard["rank"])
    _demand(shard["file"] == name, f"file {name}", shard["file"])
    _demand(bool(_CHECKSUM.fullmatch(checksum)), "a checksum", checksum)
    end = 24 + len(checksum)
    for tensor in tensors:
        _refuse_fields(tensor, _TENSOR)
        shape, dtype, digest = tensor["shape"], tensor["dtype"], tensor["digest"]
        _demand(0 < len(tensor["name"]) <= 4096, "a name", tensor["name"])
        _demand(dtype in SIZES, "a dtype", dtype)
        _demand(len(shape) <= 32, "32 dimensions or less", len(shape))
        _demand(all(type(length) is int and length >= 0 for length in shape), "lengths", "others")
        at_most = math.prod(length for length in shape if length) * SIZES[dtype]
        _demand(at_most < 2**63, "lengths that an array can have", shape)
        size = math.prod(shape) * SIZES[dtype]
        _demand(tensor["size"] == size, f"size {size}", tensor["size"])
        _demand(digest is None or bool(_DIGEST.fullmatch(digest)), "a digest", digest)
        offset = (end + 63) // 64 * 64
        _demand(tensor["offset"] == offset, f"offset {offset}", tensor["offset"])
        end = offset + size
    names = {tensor["name"] for tensor in tensors}
    _demand(len(names) == len(tensors), "each name once", sorted(names))
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
