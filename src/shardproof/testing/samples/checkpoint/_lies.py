"""Metadata that break one law each, under their own right checksum unless that is the law."""

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

from shardproof.testing.samples._layout import Layout
from shardproof.testing.samples.checkpoint._content import checkpoint_document
from shardproof.testing.samples.checkpoint._metadata import signed, wrapping_shape
from shardproof.testing.samples.checkpoint._tensors import ITEM_SIZES

__all__ = ["metadata_lies", "misnamed"]

_Path = tuple[str | int, ...]

_NOT_TEXT: tuple[object, ...] = (None, True, 0, 1.5, [], ["a"], {})
_NOT_A_NUMBER: tuple[object, ...] = (None, True, False, 1.0, 1.5, "", "1", [], [1], {})
_NOT_A_LIST: tuple[object, ...] = (None, True, 0, "", "[]", {}, {"0": 1})
_NOT_AN_OBJECT: tuple[object, ...] = (None, True, 0, "", "{}", [], [{}])
_FAR: tuple[object, ...] = (-1, 2**63, 10**30)
_HEX = "0123456789abcdef" * 4


def metadata_lies(layout: Layout) -> Iterator[bytes]:
    """Yield metadata files of a checkpoint that no reader may believe.

    Args:
        layout: The checkpoint, whose first rank has two tensors or more, the first with data.
    """
    truth = checkpoint_document(layout)
    for path, wrongs in [*_wrong_values(truth), *_wrong_texts(truth), *_wrong_tensors(truth)]:
        for wrong in wrongs:
            if (told := signed(_told(truth, path, wrong))) != signed(truth):
                yield told
    for path in _objects():
        yield from map(signed, _other_fields(truth, path))
    nobody = truth["sharding"] | {"shard_count": 0}
    yield signed(truth | {"world_size": 0, "sharding": nobody, "shards": []})
    yield from _mislaid_checksums(truth)


def misnamed(layout: Layout, name: str) -> bytes:
    """Return metadata by which the first rank's shard has another name."""
    return signed(_told(checkpoint_document(layout), ("shards", 0, "file"), name))


def _told(truth: dict[str, Any], path: _Path, wrong: object) -> dict[str, Any]:
    """Return the document with another value in one place."""
    told = copy.deepcopy(truth)
    inner: Any = told
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = wrong
    return told


_Wrongs = Iterator[tuple[_Path, tuple[object, ...]]]


def _wrong_values(truth: dict[str, Any]) -> _Wrongs:
    world_size, shards, size = truth["world_size"], truth["shards"], truth["shards"][0]["file_size"]
    counts = (0, world_size - 1, world_size + 1)
    yield ("schema_version",), (*_NOT_A_NUMBER, *_FAR, 0, 2)
    yield ("world_size",), (*_NOT_A_NUMBER, *_FAR, *counts, 2**64 + world_size)
    yield ("step",), (*_NOT_A_NUMBER, -1)
    yield ("sharding",), _NOT_AN_OBJECT
    yield ("sharding", "shard_count"), (*_NOT_A_NUMBER, *_FAR, *counts)
    yield ("shards",), (*_NOT_A_LIST, [], shards[:-1], shards + shards, [*shards, shards[0]])
    yield ("shards", 0), _NOT_AN_OBJECT
    yield ("shards", 0, "rank"), (*_NOT_A_NUMBER, *_FAR, 1, world_size)
    yield ("shards", 0, "file_size"), (*_NOT_A_NUMBER, *_FAR, size - 1, size + 1, 2**64 + size)


def _wrong_texts(truth: dict[str, Any]) -> _Wrongs:
    first, name = truth["shards"][0]["checksum"], truth["shards"][0]["file"]
    kinds = ("md5:", "sha512:", "sha256:", "xxh3-128:", "SHA256-TREE:", "blake3")
    checksums = (
        f"{first} ",
        first[:-1],
        first.upper(),
        _HEX[:32],
        *(kind + _HEX for kind in kinds),
    )
    others = (f"./{name}", f"../{name}", f"x/../{name}", name.upper(), f"{name} ", f"other_{name}")
    times = ("", "now", "2026-11-21", "2026-11-21T20:00:00", "2026-11-21 20:00:00Z", "Z")
    yield ("timestamp",), (*_NOT_TEXT, *times)
    yield ("sharding", "strategy"), _NOT_TEXT
    yield ("sharding", "precision"), _NOT_TEXT
    yield ("shards", 0, "checksum"), (*_NOT_TEXT, *checksums)
    yield ("shards", 0, "file"), (*_NOT_TEXT, *others, name.replace("_0.", "_00."))
    yield ("shards", 0, "tensors", 0, "digest"), (*_NOT_TEXT[1:], "", *checksums[-6:-4], _HEX)


def _wrong_tensors(truth: dict[str, Any]) -> _Wrongs:
    first, second, *_ = truth["shards"][0]["tensors"]
    n, item = math.prod(first["shape"]), ITEM_SIZES[first["dtype"]]
    shapes: tuple[object, ...] = (
        [0],
        [n + 1],
        [-n],
        [-1, -n],
        [float(n)],
        [str(n)],
        [True, n],
        [[n]],
    )
    long, wrapping = [*first["shape"], *[1] * 33], wrapping_shape(n, item)
    dtypes = ("", "object", "float128", "f4", "<f4", "O", "Float32", "float32 ", "pickle")
    start, size = first["offset"], first["size"]
    path: _Path = ("shards", 0, "tensors")
    yield path, (*_NOT_A_LIST, [first, first], [second, first], [second])
    yield (*path, 0), _NOT_AN_OBJECT
    yield (*path, 0, "name"), (*_NOT_TEXT, "", 4097 * "n", second["name"])
    yield (*path, 0, "dtype"), (*_NOT_TEXT, *dtypes)
    yield (*path, 0, "shape"), (*_NOT_A_LIST, *shapes, long, wrapping, [2**62] * 32)
    yield (*path, 0, "offset"), (*_NOT_A_NUMBER, *_FAR, 0, start - 1, start + 64, 2**64 + start)
    yield (*path, 0, "size"), (*_NOT_A_NUMBER, *_FAR, 0, size - 1, size + 1, 2**64 + size)
    yield (*path, 1, "offset"), (start, second["offset"] + 64)


def _objects() -> tuple[_Path, ...]:
    return ((), ("sharding",), ("shards", 0), ("shards", 0, "tensors", 0))


def _other_fields(truth: dict[str, Any], path: _Path) -> Iterator[dict[str, Any]]:
    """Yield the document with one field less, and one more."""
    inner: Any = truth
    for part in path:
        inner = inner[part]
    more = inner | {"pickled": "gASULg=="}
    less = [{key: inner[key] for key in inner if key != name} for name in inner]
    for wrong in (more, *less):
        yield _told(truth, path, wrong) if path else wrong


def _mislaid_checksums(truth: dict[str, Any]) -> Iterator[bytes]:
    """Its own checksum is not the last, is not right, or not as it must be written."""
    whole = signed(truth)
    digits = whole[-67:-3]
    checksum = {"checksum": f"sha256:{digits.decode()}"}
    yield json.dumps(checksum | truth).encode()
    yield json.dumps(truth).encode()
    yield json.dumps(truth | {"checksum": None}).encode()
    yield json.dumps(truth | checksum, indent=1).encode()
    yield whole[:-1]
    yield whole + b"\n"
    yield whole[:-1] + b"\r\n"
    yield whole.replace(digits, digits.upper())
    yield whole.replace(digits, digits[::-1])
    yield whole.replace(digits, b"0" * 64)
    yield whole.replace(b"sha256:" + digits, b"")
