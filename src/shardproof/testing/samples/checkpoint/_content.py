"""What is in the shards of a checkpoint, whole or as their states say, and in its metadata."""

import hashlib
import itertools
import struct
from typing import Any

from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples.checkpoint._states import (
    ITEM_SIZES,
    CheckpointMetadataState,
    CheckpointShardState,
    CheckpointTensor,
    rank_lied_about,
)

MAGIC = 0x53484152
_ALIGNMENT = 64
_MIB = 2**20
_NEAR = 1000


def tensor_bytes(layout: Layout, rank: int, name: str) -> bytes:
    """Return the bytes of a tensor: other ones for each rank, name, step and seed.

    None of its numbers is a NaN or infinite, and its last byte is odd, so that zeros show.

    Args:
        layout: The checkpoint; what became of it does not matter.
        rank: Whose tensor.
        name: Which one.

    Raises:
        KeyError: The rank has no such tensor.

    Example:
        >>> len(tensor_bytes(Layout(format="checkpoint"), 0, "layers.0.weight"))
        48
    """
    tensor = {tensor.name: tensor for tensor in layout.tensors[rank]}[name]
    return _tensor_bytes(layout, rank, tensor, layout.step)


def _tensor_bytes(layout: Layout, rank: int, tensor: CheckpointTensor, step: int) -> bytes:
    text = f"{tensor.name} of rank {rank}, step {step}, seed {layout.seed}"
    content = bytearray(hashlib.shake_256(text.encode()).digest(tensor.size))
    if tensor.dtype == "bool":
        content[:] = content.translate(bytes(byte & 1 for byte in range(256)))
    elif "float" in tensor.dtype or "complex" in tensor.dtype:
        # Without the two high bits of the last byte, no float is special, whatever its format.
        width = ITEM_SIZES[tensor.dtype] // (2 if "complex" in tensor.dtype else 1)
        small = bytes(byte & 0x3F for byte in range(256))
        content[width - 1 :: width] = content[width - 1 :: width].translate(small)
    if content:
        content[-1] |= 1
    return bytes(content)


def shard_bytes(layout: Layout, rank: int) -> bytes:
    """Return what is in the whole shard of a rank.

    Args:
        layout: The checkpoint. Of what became of it only what was so from the beginning matters:
            ``unchecked`` shards have no checksum, ``overlapping`` and ``holes`` are there too.
        rank: Whose shard.

    Example:
        >>> shard_bytes(Layout(format="checkpoint"), 2)[:8].hex(" ", 4)
        '52414853 02000000'
    """
    return _shard_bytes_at(layout, rank, layout.step)


def _shard_bytes_at(layout: Layout, rank: int, step: int) -> bytes:
    start, placed = _header_size(layout, rank), _placed(layout, rank)
    shard = bytearray(max((offset + tensor.size for tensor, offset in placed), default=start))
    for tensor, offset in placed:
        shard[offset : offset + tensor.size] = _tensor_bytes(layout, rank, tensor, step)
    data = bytes(shard[start:])
    checksum = _checksum(layout, rank, data).encode()
    head = struct.pack("<Iii", MAGIC, rank, len(checksum)) + checksum
    return head + struct.pack("<iq", len(placed), len(data)) + data


def _checksum(layout: Layout, rank: int, data: bytes) -> str:
    if layout.states[rank] is CheckpointShardState.UNCHECKED:
        return ""
    kind = "" if layout.algorithm == "sha256" else f"{layout.algorithm}:"
    return kind + hex_digest(layout.algorithm, data)


def hex_digest(algorithm: str, data: bytes) -> str:
    """Return a digest by an algorithm that the standard library has.

    Raises:
        NotImplementedError: It has not.
    """
    if algorithm == "sha256":
        return hashlib.sha256(data).hexdigest()
    if algorithm != "sha256-tree":
        raise NotImplementedError(
            f"a checksum of {algorithm} is not computed here: save with sha256"
        )
    leaves = [data[start : start + _MIB] for start in range(0, len(data), _MIB)]
    tree = b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)
    return hashlib.sha256(tree).hexdigest()


def _header_size(layout: Layout, rank: int) -> int:
    return 24 + len(_checksum(layout, rank, b""))


def _placed(layout: Layout, rank: int) -> list[tuple[CheckpointTensor, int]]:
    """Return a rank's tensors, and where each begins; wrongly, if that is the metadata's state."""
    state = layout.metadata
    lied_about = rank == rank_lied_about(state, layout.tensors)
    has_hole = lied_about and state is CheckpointMetadataState.HOLES
    overlaps = lied_about and state is CheckpointMetadataState.OVERLAPPING
    end = _header_size(layout, rank) + (_ALIGNMENT if has_hole else 0)
    placed = []
    for tensor in layout.tensors[rank]:
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        placed.append((tensor, offset))
        end = offset if overlaps else offset + tensor.size
    return placed


def harmed_shard(layout: Layout, rank: int) -> bytes:
    """Return the bytes of a shard, as far as its state is one of bytes and not one of the file."""
    whole, state = shard_bytes(layout, rank), layout.states[rank]
    harmed, size, placed = bytearray(whole), _header_size(layout, rank), _placed(layout, rank)
    middles = [offset + tensor.size // 2 for tensor, offset in placed if tensor.size]
    fields: dict[str, tuple[str, int, int]] = {  # of the header, that say another number, and where
        CheckpointShardState.WRONG_MAGIC: (">I", MAGIC, 0),
        CheckpointShardState.WRONG_RANK: ("<i", rank + 1, 4),
        CheckpointShardState.NEGATIVE_CHECKSUM: ("<i", -1, 8),
        CheckpointShardState.HUGE_CHECKSUM: ("<i", 2**31 - 1, 8),
        CheckpointShardState.WRONG_COUNT: ("<i", len(placed) + 1, size - 12),
        CheckpointShardState.NEGATIVE_DATA: ("<q", -1, size - 8),
        CheckpointShardState.HUGE_DATA: ("<q", 2**63 - 1, size - 8),
    }
    if state in fields:
        form, number, at = fields[state]
        struct.pack_into(form, harmed, at, number)
    match state:
        case CheckpointShardState.FLIPPED:
            harmed[middles[-1]] ^= 1
        case CheckpointShardState.FLIPPED_HEADER:
            harmed[size // 2] ^= 1
        case CheckpointShardState.FLIPPED_PADDING:
            harmed[size] ^= 1
        case CheckpointShardState.ZERO_TAIL:
            harmed[middles[-1] :] = bytes(len(whole) - middles[-1])
        case CheckpointShardState.STALE:
            # The last step before with other bytes, else the next: a few may be the same by chance.
            step = layout.step
            before = range(step - 1, max(-1, step - _NEAR), -1)
            steps = itertools.chain(before, range(step + 1, step + _NEAR))
            others = (_shard_bytes_at(layout, rank, each) for each in steps)
            return next(other for other in others if other != whole)
    return bytes(harmed)


def checkpoint_entry(layout: Layout, rank: int) -> dict[str, Any]:
    """Return what the metadata, when whole, say of a rank's shard."""
    shard, tensors = shard_bytes(layout, rank), []
    for tensor, offset in _placed(layout, rank):
        # Of what lies there: where tensors overlap it is the last one's, and the digest is right.
        digest = hashlib.sha256(shard[offset : offset + tensor.size]).hexdigest()
        checked = layout.states[rank] is not CheckpointShardState.UNCHECKED
        tensors.append(
            {
                "name": tensor.name,
                "dtype": tensor.dtype,
                "shape": list(tensor.shape),
                "offset": offset,
                "size": tensor.size,
                "digest": f"sha256:{digest}" if checked else None,
            }
        )
    return {
        "rank": rank,
        "file": layout.shard_name(rank),
        "file_size": len(shard),
        "checksum": _checksum(layout, rank, shard[_header_size(layout, rank) :]),
        "tensors": tensors,
    }


def checkpoint_document(layout: Layout) -> dict[str, Any]:
    """Return what is in the whole metadata file, but for its own checksum."""
    return {
        "schema_version": 1,
        "world_size": layout.n_shards,
        "step": layout.step,
        "timestamp": "2025-01-01T00:00:00Z",
        "sharding": {
            "strategy": "full",
            "shard_count": layout.n_shards,
            "precision": "mixed",
        },
        "shards": [checkpoint_entry(layout, rank) for rank in range(layout.n_shards)],
    }
