"""What is in the files of a checkpoint before any damage.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

from shardproof.testing.samples.checkpoint._layout import CheckpointLayout
from shardproof.testing.samples.checkpoint._needs import rank_lied_about
from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
)
from shardproof.testing.samples.checkpoint._tensors import ITEM_SIZES, CheckpointTensor

__all__ = [
    "checkpoint_document",
    "checkpoint_entry",
    "checkpoint_shard_bytes",
    "checkpoint_tensor_bytes",
    "header_size",
    "offsets",
    "shard_bytes_at",
]

_MAGIC = 0x53484152
_ALIGNMENT = 64
_MIB = 2**20


def checkpoint_tensor_bytes(value: CheckpointLayout, rank: int, name: str) -> bytes:
    """Return the bytes of a tensor: other ones for each rank, name, step and seed.

    None of its numbers is a NaN or infinite, and its last byte is odd, so that zeros show.

    Args:
        value: The checkpoint; what became of it does not matter.
        rank: Whose tensor.
        name: Which one.

    Raises:
        KeyError: The rank has no such tensor.

    Example:
        >>> len(checkpoint_tensor_bytes(checkpoint_layout(), 0, "layers.0.weight"))
        48
    """
    tensor = {tensor.name: tensor for tensor in value.tensors[rank]}[name]
    return _tensor_bytes(value, rank, tensor, value.step)


def _tensor_bytes(value: CheckpointLayout, rank: int, tensor: CheckpointTensor, step: int) -> bytes:
    text = f"{tensor.name} of rank {rank}, step {step}, seed {value.seed}"
    content = bytearray(hashlib.shake_256(text.encode()).digest(tensor.size))
    _make_numbers(content, tensor.dtype)
    if content:
        content[-1] |= 1
    return bytes(content)


def _make_numbers(content: bytearray, dtype: str) -> None:
    """Without the two high bits of the last byte, no float is special, whatever its format."""
    if dtype == "bool":
        content[:] = content.translate(bytes(byte & 1 for byte in range(256)))
    elif "float" in dtype or "complex" in dtype:
        width = ITEM_SIZES[dtype] // (2 if "complex" in dtype else 1)
        small = bytes(byte & 0x3F for byte in range(256))
        content[width - 1 :: width] = content[width - 1 :: width].translate(small)


def checkpoint_shard_bytes(value: CheckpointLayout, rank: int) -> bytes:
    """Return what is in the whole shard of a rank.

    Args:
        value: The checkpoint. Of what became of it only what was so from the beginning matters:
            ``unchecked`` shards have no checksum, ``overlapping`` and ``holes`` are there too.
        rank: Whose shard.

    Example:
        >>> checkpoint_shard_bytes(checkpoint_layout(), 2)[:8].hex(" ", 4)
        '52414853 02000000'
    """
    return shard_bytes_at(value, rank, value.step)


def shard_bytes_at(value: CheckpointLayout, rank: int, step: int) -> bytes:
    """Return what would be in the whole shard of a rank, had it been saved at another step."""
    data = _data(value, rank, step)
    checksum = _checksum(value, rank, data).encode()
    start = struct.pack("<Iii", _MAGIC, rank, len(checksum)) + checksum
    return start + struct.pack("<iq", len(value.tensors[rank]), len(data)) + data


def _data(value: CheckpointLayout, rank: int, step: int) -> bytes:
    start = header_size(value, rank)
    placed = [*zip(value.tensors[rank], offsets(value, rank), strict=True)]
    data = bytearray(max((offset + tensor.size for tensor, offset in placed), default=start))
    for tensor, offset in placed:
        data[offset : offset + tensor.size] = _tensor_bytes(value, rank, tensor, step)
    return bytes(data[start:])


def _checksum(value: CheckpointLayout, rank: int, data: bytes) -> str:
    if value.states[rank] is CheckpointShardState.UNCHECKED:
        return ""
    if value.digest == "sha256":
        return hashlib.sha256(data).hexdigest()
    leaves = [data[start : start + _MIB] for start in range(0, len(data), _MIB)]
    tree = b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)
    return f"sha256-tree:{hashlib.sha256(tree).hexdigest()}"


def header_size(value: CheckpointLayout, rank: int) -> int:
    """Return at which byte of a rank's shard the data begin."""
    return 24 + len(_checksum(value, rank, b""))


def offsets(value: CheckpointLayout, rank: int) -> Iterator[int]:
    """Yield where each tensor of a rank begins; wrongly, if that is the metadata's state."""
    state = value.metadata
    lied_about = rank == rank_lied_about(state, value.tensors)
    has_hole = lied_about and state is CheckpointMetadataState.HOLES
    overlaps = lied_about and state is CheckpointMetadataState.OVERLAPPING
    end = header_size(value, rank) + (_ALIGNMENT if has_hole else 0)
    for tensor in value.tensors[rank]:
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        yield offset
        end = offset if overlaps else offset + tensor.size


def checkpoint_entry(value: CheckpointLayout, rank: int) -> dict[str, Any]:
    """Return what the metadata, when whole, say of a rank's shard."""
    shard = checkpoint_shard_bytes(value, rank)
    start = header_size(value, rank)
    placed = zip(value.tensors[rank], offsets(value, rank), strict=True)
    checked = value.states[rank] is not CheckpointShardState.UNCHECKED
    return {
        "rank": rank,
        "file": value.shard_name(rank),
        "file_size": len(shard),
        "checksum": _checksum(value, rank, shard[start:]),
        "tensors": [_described(shard, *each, checked=checked) for each in placed],
    }


def _described(
    shard: bytes, tensor: CheckpointTensor, offset: int, *, checked: bool
) -> dict[str, Any]:
    # Of what lies there: where tensors overlap it is the last one's, and the digest is right.
    digest = hashlib.sha256(shard[offset : offset + tensor.size]).hexdigest()
    return {
        "name": tensor.name,
        "dtype": tensor.dtype,
        "shape": list(tensor.shape),
        "offset": offset,
        "size": tensor.size,
        "digest": f"sha256:{digest}" if checked else None,
    }


def checkpoint_document(value: CheckpointLayout) -> dict[str, Any]:
    """Return what is in the whole metadata file, but for its own checksum."""
    return {
        "schema_version": 1,
        "world_size": value.world_size,
        "step": value.step,
        "timestamp": "2025-01-01T00:00:00Z",
        "sharding": {
            "strategy": "full",
            "shard_count": value.world_size,
            "precision": "mixed",
        },
        "shards": [checkpoint_entry(value, rank) for rank in range(value.world_size)],
    }
