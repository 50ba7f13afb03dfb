"""What is in the metadata file of a checkpoint, whole or as its state says.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable
from typing import Any

from shardproof.testing.samples.checkpoint._content import checkpoint_document
from shardproof.testing.samples.checkpoint._layout import CheckpointLayout
from shardproof.testing.samples.checkpoint._needs import rank_lied_about
from shardproof.testing.samples.checkpoint._states import CheckpointMetadataState
from shardproof.testing.samples.checkpoint._tensors import ITEM_SIZES

__all__ = ["checkpoint_metadata_bytes", "elsewhere", "sealed", "signed", "wrapping_shape"]


def checkpoint_metadata_bytes(value: CheckpointLayout) -> bytes | None:
    """Return what is in the metadata file in its state; None where it has none to have it.

    Args:
        value: The checkpoint. Of what became of its shards only ``unchecked`` matters.

    Example:
        >>> checkpoint_metadata_bytes(checkpoint_layout(metadata="empty"))
        b''
    """
    if value.metadata in _NOT_THERE:
        return None
    document = checkpoint_document(value)
    _LIES.get(value.metadata, _leave)(value, document)
    text = sealed(_SPELLINGS.get(value.metadata, bytes)(_unsealed(document)))
    return _HARMS.get(value.metadata, bytes)(text)


_NOT_THERE = {CheckpointMetadataState.MISSING, CheckpointMetadataState.UNFINISHED}


def signed(document: dict[str, Any]) -> bytes:
    """Return a document as the text of a metadata file that has its own right checksum."""
    return sealed(_unsealed(document))


def _unsealed(document: dict[str, Any]) -> bytes:
    return json.dumps(document | {"checksum": ""})[: -len('"}')].encode()


def sealed(text: bytes) -> bytes:
    """Return a text with the checksum behind it with which a metadata file ends."""
    return text + b'sha256:%b"}\n' % hashlib.sha256(text).hexdigest().encode()


def elsewhere(value: CheckpointLayout) -> str:
    """Return where the file lies that ``escaping`` metadata name, relative to the directory."""
    return f"../{value.prefix}-step-{value.step}/{value.shard_name(value.world_size - 1)}"


def wrapping_shape(n_elements: int, item_size: int) -> list[int]:
    """Return a shape that has so many elements only where 64 bits are all that there is."""
    modulus = 2**64 // item_size
    for one in itertools.count(2**32 + 1, 2):
        other = n_elements * pow(one, -1, modulus) % modulus
        if other < 2**63 and one * other != n_elements:
            return [one, other]
    raise AssertionError  # pragma: no cover - there are many odd numbers


def _leave(_value: CheckpointLayout, _document: dict[str, Any]) -> None:
    pass


def _add_field(_value: CheckpointLayout, document: dict[str, Any]) -> None:
    document["pickled"] = "gASULg=="


def _raise_version(_value: CheckpointLayout, document: dict[str, Any]) -> None:
    document["schema_version"] = 2


def _raise_rank(value: CheckpointLayout, document: dict[str, Any]) -> None:
    document["shards"][-1]["rank"] = value.world_size


def _unlist(_value: CheckpointLayout, document: dict[str, Any]) -> None:
    del document["shards"][-1]


def _escape(value: CheckpointLayout, document: dict[str, Any]) -> None:
    document["shards"][-1]["file"] = elsewhere(value)


def _overflow(value: CheckpointLayout, document: dict[str, Any]) -> None:
    tensors = _lied_about(value, document)
    tensor = next(tensor for tensor in tensors if tensor["size"])
    n_elements = math.prod(tensor["shape"])
    tensor["shape"] = wrapping_shape(n_elements, ITEM_SIZES[tensor["dtype"]])


def _make_object(value: CheckpointLayout, document: dict[str, Any]) -> None:
    _lied_about(value, document)[0]["dtype"] = "object"


def _lied_about(value: CheckpointLayout, document: dict[str, Any]) -> list[dict[str, Any]]:
    rank = rank_lied_about(value.metadata, value.tensors)
    tensors: list[dict[str, Any]] = document["shards"][rank]["tensors"]
    return tensors


_LIES: dict[CheckpointMetadataState, Callable[[CheckpointLayout, dict[str, Any]], None]] = {
    CheckpointMetadataState.UNKNOWN_FIELD: _add_field,
    CheckpointMetadataState.OTHER_VERSION: _raise_version,
    CheckpointMetadataState.OTHER_RANKS: _raise_rank,
    CheckpointMetadataState.UNLISTED: _unlist,
    CheckpointMetadataState.ESCAPING: _escape,
    CheckpointMetadataState.OVERFLOWING: _overflow,
    CheckpointMetadataState.UNKNOWN_DTYPE: _make_object,
}


def _say_twice(text: bytes) -> bytes:
    return b'{"step": 1000, ' + text[1:]


def _no_json(text: bytes) -> bytes:
    return text.replace(b'"', b"'")


_SPELLINGS: dict[CheckpointMetadataState, Callable[[bytes], bytes]] = {
    CheckpointMetadataState.DUPLICATE_KEY: _say_twice,
    CheckpointMetadataState.NOT_JSON: _no_json,
}


def _blank(_text: bytes) -> bytes:
    return b""


def _cut(text: bytes) -> bytes:
    return text[: len(text) // 2]


def _flip(text: bytes) -> bytes:
    end = text.index(b",", text.index(b'"step":'))
    return text[: end - 1] + bytes([text[end - 1] ^ 1]) + text[end:]


def _missign(text: bytes) -> bytes:
    end = len(text) - len(b'"}\n')
    other = b"0" if text[end - 1 : end] != b"0" else b"1"
    return text[: end - 1] + other + text[end:]


_HARMS: dict[CheckpointMetadataState, Callable[[bytes], bytes]] = {
    CheckpointMetadataState.EMPTY: _blank,
    CheckpointMetadataState.TRUNCATED: _cut,
    CheckpointMetadataState.FLIPPED: _flip,
    CheckpointMetadataState.MISSIGNED: _missign,
}
