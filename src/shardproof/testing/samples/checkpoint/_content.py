"""What is in a checkpoint's files: shards as the library writes them, whole or harmed; metadata."""

import hashlib
import itertools
import json
import math
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

_ALIGNMENT = 64


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


def whole_shard(layout: Layout, rank: int, step: int | None = None) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a rank's shard, and its entry of the metadata."""
    step = layout.step if step is None else step
    tensors = layout.tensors[rank]
    contents = {each.name: _tensor_bytes(layout, rank, each, step) for each in tensors}
    state = layout.metadata if rank == rank_lied_about(layout.metadata, layout.tensors) else "ok"
    stored = contents
    if state == CheckpointMetadataState.HOLES:
        stored = {"".join([*contents, "hole"]): bytes(_ALIGNMENT), **contents}
    elif state == CheckpointMetadataState.OVERLAPPING:
        overlaid = b""
        for content in contents.values():
            overlaid = content + overlaid[len(content) :]
        stored = {"all of them": overlaid}
    shard, entry = _serialized(stored, rank, layout.algorithm)
    written = {each["name"]: each for each in entry["tensors"]}
    if state == CheckpointMetadataState.OVERLAPPING:
        written = {name: {**written["all of them"], "digest": None} for name in contents}
    # To the library all of them are bytes: what else they are stands in the metadata alone.
    entry["tensors"] = [
        {**written[each.name], **each._asdict(), "size": each.size} for each in tensors
    ]
    struct.pack_into("<i", shard, _header_size(entry) - 12, len(tensors))
    if layout.states[rank] == CheckpointShardState.UNCHECKED:
        shard = _without_checksum(shard, entry)
    return bytes(shard), entry | {"file": layout.shard_name(rank), "file_size": len(shard)}


def _serialized(
    contents: dict[str, bytes], rank: int, algorithm: Any
) -> tuple[bytearray, dict[str, Any]]:
    """Return a shard as the library writes it, and the entry that it has behind it."""
    # Not before they are needed.
    import numpy as np  # noqa: PLC0415

    from shardproof.checkpoint import MultiShardCheckpointFormat  # noqa: PLC0415

    arrays = {name: np.frombuffer(content, np.uint8) for name, content in contents.items()}
    data = MultiShardCheckpointFormat(algorithm=algorithm).serialize(arrays, rank=rank)
    (n_checksum,) = struct.unpack_from("<i", data, 8)
    (n_data,) = struct.unpack_from("<q", data, 16 + n_checksum)
    end = 24 + n_checksum + n_data
    entry: dict[str, Any] = json.loads(data[end:])["shard"]
    return bytearray(data[:end]), entry


def _header_size(entry: dict[str, Any]) -> int:
    return 24 + len(entry["checksum"])


def _without_checksum(shard: bytearray, entry: dict[str, Any]) -> bytearray:
    """Change a shard and its entry to what they are without anything that proves them."""
    begin = -(-_header_size(entry) // _ALIGNMENT) * _ALIGNMENT
    data = shard[begin:] if entry["tensors"] else None
    entry["checksum"] = ""
    for tensor in entry["tensors"]:
        tensor |= {"digest": None, "offset": tensor["offset"] - begin + _ALIGNMENT}
    rest = b"" if data is None else bytes(_ALIGNMENT - 24) + data
    return shard[:8] + struct.pack("<iiq", 0, len(entry["tensors"]), len(rest)) + rest


def harmed_shard(layout: Layout, rank: int) -> bytes:
    """Return the bytes of a shard, as far as its state is one of bytes and not one of the file."""
    whole, entry = whole_shard(layout, rank)
    harmed, size, tensors = bytearray(whole), _header_size(entry), entry["tensors"]
    state = layout.states[rank]
    middles = [each["offset"] + each["size"] // 2 for each in tensors if each["size"]]
    fields: dict[str, tuple[str, int, int]] = {  # of the header, that say another number, and where
        CheckpointShardState.WRONG_MAGIC: (">I", 0x53484152, 0),
        CheckpointShardState.WRONG_RANK: ("<i", rank + 1, 4),
        CheckpointShardState.NEGATIVE_CHECKSUM: ("<i", -1, 8),
        CheckpointShardState.HUGE_CHECKSUM: ("<i", 2**31 - 1, 8),
        CheckpointShardState.WRONG_COUNT: ("<i", len(tensors) + 1, size - 12),
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
            # Of the step before, else of the next ones: a few may be the same by chance.
            steps = range(max(0, layout.step - 1), layout.step + 1000)
            others = (whole_shard(layout, rank, each)[0] for each in steps)
            return next(other for other in others if other != whole)
    return bytes(harmed)


def metadata_bytes(layout: Layout) -> bytes | None:
    """Return what the metadata file says, or lies; None where there is no such file."""
    state = layout.metadata
    if state in {CheckpointMetadataState.MISSING, CheckpointMetadataState.UNFINISHED}:
        return None
    document = checkpoint_document(layout)
    _break_law(layout, document)
    text = _unsealed(document)
    if state is CheckpointMetadataState.DUPLICATE_KEY:
        text = b'{"step": 1000, ' + text[1:]
    elif state is CheckpointMetadataState.NOT_JSON:
        text = text.replace(b'"', b"'")
    text = sealed(text)
    match state:
        case CheckpointMetadataState.FLIPPED:
            end = text.index(b",", text.index(b'"step":'))
            return text[: end - 1] + bytes([text[end - 1] ^ 1]) + text[end:]
        case CheckpointMetadataState.MISSIGNED:
            end = len(text) - len(b'"}\n')
            other = b"0" if text[end - 1 : end] != b"0" else b"1"
            return text[: end - 1] + other + text[end:]
    return text


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
        "shards": [whole_shard(layout, rank)[1] for rank in range(layout.n_shards)],
    }


def signed(document: dict[str, Any]) -> bytes:
    """Return a document as the text of a metadata file that has its own right checksum."""
    return sealed(_unsealed(document))


def _unsealed(document: dict[str, Any]) -> bytes:
    return json.dumps(document | {"checksum": ""})[: -len('"}')].encode()


def sealed(text: bytes) -> bytes:
    """Return a text with the checksum behind it with which a metadata file ends."""
    return text + b'sha256:%b"}\n' % hashlib.sha256(text).hexdigest().encode()


def elsewhere(layout: Layout) -> str:
    """Return where the file lies that ``escaping`` metadata name, relative to the directory."""
    return f"../{layout.prefix}-step-{layout.step}/{layout.shard_name(layout.n_shards - 1)}"


def wrapping_shape(n_elements: int, item_size: int) -> list[int]:
    """Return a shape that has so many elements only where 64 bits are all that there is."""
    modulus = 2**64 // item_size
    for one in itertools.count(2**32 + 1, 2):
        other = n_elements * pow(one, -1, modulus) % modulus
        if other < 2**63 and one * other != n_elements:
            return [one, other]
    raise AssertionError  # pragma: no cover - there are many odd numbers


def _break_law(layout: Layout, document: dict[str, Any]) -> None:
    last = document["shards"][-1]
    match layout.metadata:
        case CheckpointMetadataState.UNKNOWN_FIELD:
            document["pickled"] = "gASULg=="
        case CheckpointMetadataState.OTHER_VERSION:
            document["schema_version"] = 2
        case CheckpointMetadataState.OTHER_RANKS:
            last["rank"] = layout.n_shards
        case CheckpointMetadataState.UNLISTED:
            del document["shards"][-1]
        case CheckpointMetadataState.ESCAPING:
            last["file"] = elsewhere(layout)
        case CheckpointMetadataState.OVERFLOWING | CheckpointMetadataState.UNKNOWN_DTYPE as state:
            tensors = document["shards"][rank_lied_about(state, layout.tensors)]["tensors"]
            if state is CheckpointMetadataState.UNKNOWN_DTYPE:
                tensors[0]["dtype"] = "object"
            else:
                tensor = next(tensor for tensor in tensors if tensor["size"])
                n_elements = math.prod(tensor["shape"])
                tensor["shape"] = wrapping_shape(n_elements, ITEM_SIZES[tensor["dtype"]])
