"""The metadata file of a checkpoint: whole, or as its state says."""

import hashlib
import itertools
import json
import math
from typing import Any

from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples.checkpoint._content import whole_shard
from shardproof.testing.samples.checkpoint._states import (
    ITEM_SIZES,
    CheckpointMetadataState,
    rank_lied_about,
)


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
