"""What is in the shards of a checkpoint, whole or as their states say, and in its metadata."""

import hashlib
import itertools
import struct
from collections.abc import Iterator
from typing import Any

from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples.checkpoint._states import (
    CheckpointMetadataState,
    CheckpointShardState,
)
from shardproof.testing.samples.checkpoint._tensors import (
    ITEM_SIZES,
    CheckpointTensor,
    rank_lied_about,
)

__all__ = [
    "checkpoint_document",
    "checkpoint_entry",
    "harmed_shard",
    "shard_bytes",
    "tensor_bytes",
]

_MAGIC = 0x53484152
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
    """Return what would be in the whole shard of a rank, had it been saved at another step."""
    data = _data(layout, rank, step)
    checksum = _checksum(layout, rank, data).encode()
    start = struct.pack("<Iii", _MAGIC, rank, len(checksum)) + checksum
    return start + struct.pack("<iq", len(layout.tensors[rank]), len(data)) + data


def _data(layout: Layout, rank: int, step: int) -> bytes:
    start = _header_size(layout, rank)
    placed = [*zip(layout.tensors[rank], _offsets(layout, rank), strict=True)]
    data = bytearray(max((offset + tensor.size for tensor, offset in placed), default=start))
    for tensor, offset in placed:
        data[offset : offset + tensor.size] = _tensor_bytes(layout, rank, tensor, step)
    return bytes(data[start:])


def _checksum(layout: Layout, rank: int, data: bytes) -> str:
    if layout.states[rank] is CheckpointShardState.UNCHECKED:
        return ""
    if layout.algorithm == "sha256":
        return hashlib.sha256(data).hexdigest()
    leaves = [data[start : start + _MIB] for start in range(0, len(data), _MIB)]
    tree = b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)
    return f"sha256-tree:{hashlib.sha256(tree).hexdigest()}"


def _header_size(layout: Layout, rank: int) -> int:
    """Return at which byte of a rank's shard the data begin."""
    return 24 + len(_checksum(layout, rank, b""))


def _offsets(layout: Layout, rank: int) -> Iterator[int]:
    """Yield where each tensor of a rank begins; wrongly, if that is the metadata's state."""
    state = layout.metadata
    lied_about = rank == rank_lied_about(state, layout.tensors)
    has_hole = lied_about and state is CheckpointMetadataState.HOLES
    overlaps = lied_about and state is CheckpointMetadataState.OVERLAPPING
    end = _header_size(layout, rank) + (_ALIGNMENT if has_hole else 0)
    for tensor in layout.tensors[rank]:
        offset = -(-end // _ALIGNMENT) * _ALIGNMENT
        yield offset
        end = offset if overlaps else offset + tensor.size


def harmed_shard(layout: Layout, rank: int) -> bytes:
    """Return the bytes of a shard, as far as its state is one of bytes and not one of the file."""
    whole, state = shard_bytes(layout, rank), layout.states[rank]
    if state in _FIELDS:
        form, number, at = _FIELDS[state]
        return _with_field(whole, form, number, at=at)
    harmed = whole
    after_checksum = _header_size(layout, rank) - 24
    match state:
        case CheckpointShardState.FLIPPED:
            harmed = _flipped(whole, _middle_of_last(layout, rank))
        case CheckpointShardState.FLIPPED_HEADER:
            harmed = _flipped(whole, _header_size(layout, rank) // 2)
        case CheckpointShardState.FLIPPED_PADDING:
            harmed = _flipped(whole, _header_size(layout, rank))
        case CheckpointShardState.ZERO_TAIL:
            harmed = whole[: _middle_of_last(layout, rank)].ljust(len(whole), b"\0")
        case CheckpointShardState.STALE:
            # The last step before with other bytes, else the next: a few may be the same by chance.
            step = layout.step
            steps = itertools.chain(
                range(step - 1, max(-1, step - _NEAR), -1), range(step + 1, step + _NEAR)
            )
            others = (_shard_bytes_at(layout, rank, each) for each in steps)
            harmed = next(other for other in others if other != whole)
        case CheckpointShardState.WRONG_RANK:
            harmed = _with_field(whole, "<i", rank + 1, at=4)
        case CheckpointShardState.WRONG_COUNT:
            n_tensors = len(layout.tensors[rank])
            harmed = _with_field(whole, "<i", n_tensors + 1, at=12 + after_checksum)
        case CheckpointShardState.NEGATIVE_DATA:
            harmed = _with_field(whole, "<q", -1, at=16 + after_checksum)
        case CheckpointShardState.HUGE_DATA:
            harmed = _with_field(whole, "<q", 2**63 - 1, at=16 + after_checksum)
    return harmed


_FIELDS: dict[str, tuple[str, int, int]] = {
    CheckpointShardState.WRONG_MAGIC: (">I", 0x53484152, 0),
    CheckpointShardState.NEGATIVE_CHECKSUM: ("<i", -1, 8),
    CheckpointShardState.HUGE_CHECKSUM: ("<i", 2**31 - 1, 8),
}
"""Fields of the header that say another number, and where."""


def _with_field(whole: bytes, form: str, number: int, *, at: int) -> bytes:
    field = struct.pack(form, number)
    return whole[:at] + field + whole[at + len(field) :]


def _flipped(whole: bytes, place: int) -> bytes:
    return whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]


def _middle_of_last(layout: Layout, rank: int) -> int:
    """Return where the middle byte is of the last tensor that has any."""
    placed = zip(layout.tensors[rank], _offsets(layout, rank), strict=True)
    *_, (tensor, offset) = [each for each in placed if each[0].size]
    middle: int = offset + tensor.size // 2
    return middle


def checkpoint_entry(layout: Layout, rank: int) -> dict[str, Any]:
    """Return what the metadata, when whole, say of a rank's shard."""
    shard = shard_bytes(layout, rank)
    start = _header_size(layout, rank)
    placed = zip(layout.tensors[rank], _offsets(layout, rank), strict=True)
    checked = layout.states[rank] is not CheckpointShardState.UNCHECKED
    return {
        "rank": rank,
        "file": layout.shard_name(rank),
        "file_size": len(shard),
        "checksum": _checksum(layout, rank, shard[start:]),
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
