"""What metadata of a checkpoint must say to be believed, law by law."""

import hashlib
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from shardproof.testing.samples.checkpoint._tensors import ITEM_SIZES

__all__ = ["demand", "lawful_metadata"]

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
_TENSOR = {
    "name": str,
    "dtype": str,
    "shape": list,
    "offset": int,
    "size": int,
    "digest": (str, type(None)),
}
_Types = dict[str, type | tuple[type, ...]]


def demand(is_so: bool, what: str, found: object = "") -> None:
    """Raise a ValueError unless it is so."""
    if not is_so:
        raise ValueError(f"expected {what}, found {found!r}")


def lawful_metadata(text: bytes, prefix: str) -> dict[str, Any]:
    """Return what is in a metadata file.

    Args:
        text: The whole file.
        prefix: The name by which it was found.

    Raises:
        ValueError: A law is broken.
    """
    demand(len(text) <= _MAX_BYTES, "64 MiB or less", len(text))
    seal = _SEAL.fullmatch(text[-74:])
    digest = hashlib.sha256(text[:-74]).hexdigest().encode()
    demand(seal is not None and seal[1] == digest, f"checksum {digest!r} at the end", text[-74:])
    try:
        document: dict[str, Any] = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_once,
            parse_constant=_refuse_number,
            parse_float=_refuse_number,
        )
    except RecursionError as error:
        raise ValueError("expected JSON, found one nested too deeply") from error
    _refuse_fields(document, _METADATA)
    _refuse_head(document)
    for rank, shard in enumerate(document["shards"]):
        _refuse_shard(shard, rank, prefix)
    return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    demand(len(document) == len(pairs), "each key once", [key for key, _ in pairs])
    return document


def _refuse_number(text: str) -> None:
    demand(False, "integers", text)


def _refuse_fields(document: Any, fields: Any) -> None:
    demand(type(document) is dict, "an object", type(document))
    demand(document.keys() == fields.keys(), f"fields {[*fields]}", [*document])
    for name, types in fields.items():
        allowed = types if isinstance(types, tuple) else (types,)
        demand(type(document[name]) in allowed, f"{name} of type {types}", type(document[name]))
        if type(document[name]) is str:
            document[name].encode()  # half of a surrogate pair is a UnicodeError, a ValueError


def _refuse_head(document: dict[str, Any]) -> None:
    world_size, sharding = document["world_size"], document["sharding"]
    demand(document["schema_version"] == 1, "schema_version 1", document["schema_version"])
    demand(bool(_TIME.fullmatch(document["timestamp"])), "a time", document["timestamp"])
    demand(document["step"] >= 0, "step 0 or more", document["step"])
    demand(world_size >= 1, "world_size 1 or more", world_size)
    demand(len(document["shards"]) == world_size, f"{world_size} shards", len(document["shards"]))
    _refuse_fields(sharding, _SHARDING)
    demand(sharding["shard_count"] == world_size, f"{world_size} shards", sharding["shard_count"])


def _refuse_shard(shard: Any, rank: int, prefix: str) -> None:
    _refuse_fields(shard, _SHARD)
    name = f"{prefix}_shard_{rank}.shard"
    demand(shard["rank"] == rank, f"rank {rank}", shard["rank"])
    demand(shard["file"] == name, f"file {name}", shard["file"])
    checksum, tensors = shard["checksum"], shard["tensors"]
    demand(bool(_CHECKSUM.fullmatch(checksum)), "a checksum", checksum)
    for tensor in tensors:
        _refuse_tensor(tensor)
    names = {tensor["name"] for tensor in tensors}
    demand(len(names) == len(tensors), "each name once", sorted(names))
    _refuse_places(tensors, 24 + len(checksum), shard["file_size"])


def _refuse_tensor(tensor: Any) -> None:
    _refuse_fields(tensor, _TENSOR)
    shape, dtype, digest = tensor["shape"], tensor["dtype"], tensor["digest"]
    demand(0 < len(tensor["name"]) <= 4096, "a name", tensor["name"])
    demand(dtype in ITEM_SIZES, "a dtype", dtype)
    demand(len(shape) <= 32, "32 dimensions or less", len(shape))
    demand(all(type(length) is int and length >= 0 for length in shape), "lengths", "others")
    at_most = math.prod(length for length in shape if length) * ITEM_SIZES[dtype]
    demand(at_most < 2**63, "lengths that an array can have", shape)
    size = math.prod(shape) * ITEM_SIZES[dtype]
    demand(tensor["size"] == size, f"size {size}", tensor["size"])
    demand(digest is None or bool(_DIGEST.fullmatch(digest)), "a digest", digest)


def _refuse_places(tensors: Sequence[dict[str, Any]], end: int, file_size: int) -> None:
    for tensor in tensors:
        offset = (end + 63) // 64 * 64
        demand(tensor["offset"] == offset, f"offset {offset}", tensor["offset"])
        end = offset + tensor["size"]
    demand(file_size == end, f"file_size {end}", file_size)
