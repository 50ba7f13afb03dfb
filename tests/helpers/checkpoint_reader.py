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
    "bfloat16": 2,
    "complex64": 8,
    "complex128": 16,
    **{f"{sign}int{8 * n}": n for n in (1, 2, 4, 8) for sign in ("", "u")},
    **{f"float{8 * n}": n for n in (2, 4, 8)},
    **{f"float8_{kind}": 1 for kind in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")},
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
    except (OSError, ValueError, AssertionError):
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
        assert shard
        checksum, n_tensors = entry["checksum"].encode(), len(entry["tensors"])
        if level != "present":
            assert len(shard) == entry["file_size"]
            n_data = entry["file_size"] - 24 - len(checksum)
            numbers = MAGIC, entry["rank"], len(checksum), checksum, n_tensors, n_data
            header = struct.pack(f"<Iii{len(checksum)}siq", *numbers)
            assert shard.startswith(header)
        if level == "valid":
            kind, _, digits = entry["checksum"].rpartition(":")
            assert hex_digest(kind or "sha256", shard[24 + len(checksum) :]) == digits
            end = 24 + len(checksum)
            for tensor in entry["tensors"]:
                assert not any(shard[end : tensor["offset"]])
                end = tensor["offset"] + tensor["size"]
                kind, _, digits = (tensor["digest"] or "").partition(":")
                content = shard[tensor["offset"] : tensor["offset"] + tensor["size"]]
                assert not kind or hex_digest(kind, content) == digits
        shards.append(shard)
    return document, shards


def _content(path: Path) -> bytes:
    real = os.path.realpath(path, strict=True)
    assert os.path.dirname(real) == os.path.realpath(path.parent, strict=True)
    # Before it is opened: that of a named pipe may take for ever.
    assert stat.S_ISREG(os.stat(real).st_mode)
    return Path(real).read_bytes()


def _lawful(text: bytes, prefix: str) -> dict[str, Any]:
    """Return what is in the metadata file of a prefix; a broken law fails."""
    assert text.endswith(b'sha256:%b"}\n' % hashlib.sha256(text[:-74]).hexdigest().encode())

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    document: dict[str, Any] = json.loads(text, object_pairs_hook=once)
    assert document.keys() == _FIELDS
    assert document["sharding"].keys() == _SHARDING
    assert document["schema_version"] == 1
    numbers = document["world_size"], document["sharding"]["shard_count"]
    assert numbers == (len(document["shards"]),) * 2 != (0, 0)
    for rank, shard in enumerate(document["shards"]):
        _see_shard(shard, rank, prefix)
    return document


def _see_shard(shard: dict[str, Any], rank: int, prefix: str) -> None:
    assert shard.keys() == _SHARD
    assert (shard["rank"], shard["file"]) == (rank, f"{prefix}_shard_{rank}.shard")
    end = 24 + len(shard["checksum"])
    for tensor in shard["tensors"]:
        assert tensor.keys() == _TENSOR
        assert tensor["dtype"] in SIZES
        assert tensor["size"] == math.prod(tensor["shape"]) * SIZES[tensor["dtype"]]
        assert tensor["offset"] == (end + 63) // 64 * 64
        end = tensor["offset"] + tensor["size"]
    assert len({tensor["name"] for tensor in shard["tensors"]}) == len(shard["tensors"])
    assert shard["file_size"] == end


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
