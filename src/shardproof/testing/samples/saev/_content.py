"""What is in the files of a shards directory of saev before any damage.

This module imports nothing of shardproof: it must not share the code that it helps to judge.
"""

import array
import base64
import hashlib
import json
import sys
from collections.abc import Sequence
from typing import Any

from shardproof.testing.samples.saev._layout import Layout

__all__ = ["content", "directory_name", "manifest_files", "shard_content"]

_PERIOD = 2**24  # float32 holds every integer up to here exactly


def directory_name(value: Layout) -> str:
    """Return the name that saev gives: 8 hex digits of a digest of the metadata as compact JSON.

    saev asks orjson for sorted keys, which orjson does not do for a dataclass: the fields stay in
    the order in which saev declares them.
    """
    compact = json.dumps(_metadata(value), separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(compact.encode()).hexdigest()[:8]


def manifest_files(value: Layout) -> dict[str, bytes]:
    """Return what saev's writer puts into each file of the manifest, by file name.

    Args:
        value: Its damage does not matter: a manifest promises whole shards.

    Example:
        >>> sorted(manifest_files(layout(n_shards=1)))
        ['metadata.json', 'shards.json']
    """
    return {"metadata.json": _pretty(_metadata(value)), "shards.json": _pretty(_entries(value))}


def content(value: Layout, name: str) -> bytes:
    """Return the bytes of a whole file that the manifest promises: of a shard or of the labels.

    Each value of a shard says where it belongs: the values of all examples, in the order (example,
    layer, token, dimension), count up from 1, and from 1 again after 2**24. Rows without an example
    are zero. A label is the place of its content token, modulo 256.

    Args:
        value: The directory; what became of the file does not matter.
        name: One of `Layout.file_names`.

    Raises:
        ValueError: The manifest promises no such file.

    Example:
        >>> import struct
        >>> struct.unpack("<4f", content(layout(n_shards=2), "acts000001.bin")[:16])
        (257.0, 258.0, 259.0, 260.0)
    """
    if name == "labels.bin" and value.labels:
        n_labels = value.n_examples * value.content_tokens_per_example
        return bytes(place % 256 for place in range(n_labels))
    return shard_content(value, _index_of(value, name))


def _index_of(value: Layout, name: str) -> int:
    """Whose name it is, without making all names: this is asked for each shard."""
    digits = name.removeprefix("acts").removesuffix(".bin")
    index = int(digits) if digits.isdecimal() else value.n_shards
    if index >= value.n_shards or name != value.shard_name(index):
        expected = ", ".join(_shortened(value.file_names))
        raise ValueError(f"name: expected one of {expected}, found {name!r}")
    return index


def _shortened(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) < 9 else [*names[:3], "...", *names[-2:]]


def shard_content(value: Layout, index: int) -> bytes:
    """Return the bytes of a whole shard; see `content`."""
    examples, layers, tokens, d_model = value.shard_shape
    values_per_example = layers * tokens * d_model
    first = index * examples * values_per_example
    end = first + value.examples_in(index) * values_per_example
    numbers = array.array("f", (1 + place % _PERIOD for place in range(first, end)))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes().ljust(value.shard_bytes, b"\0")


def _metadata(value: Layout) -> dict[str, Any]:
    """Return saev's fields in saev's order, on which the hash depends."""
    return {
        "family": "clip",
        "ckpt": "ViT-B-32/openai",
        "layers": list(value.layers),
        "content_tokens_per_example": value.content_tokens_per_example,
        "cls_token": value.cls_token,
        "d_model": value.d_model,
        "n_examples": value.n_examples,
        "max_tokens_per_shard": (
            value.examples_per_shard * len(value.layers) * value.tokens_per_example
        ),
        # saev puts a pickle here. Whoever loads this one gets an error and no surprise.
        "data": base64.b64encode(b"not a pickle").decode(),
        "dataset": "/data/images",
        "pixel_agg": "majority",
        "dtype": "float32",
        "protocol": "2.1",
    }


def _entries(value: Layout) -> list[dict[str, Any]]:
    return [
        {"name": name, "n_examples": value.examples_in(index)}
        for index, name in enumerate(value.shard_names)
    ]


def _pretty(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode()
