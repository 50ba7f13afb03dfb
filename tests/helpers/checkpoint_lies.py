"""Metadata of checkpoints that no reader may believe: each law of the format broken once."""

import copy
import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from shardproof.testing import Layout
from shardproof.testing.samples.checkpoint._content import (
    ITEM_SIZES,
    checkpoint_document,
    sealed,
    signed,
    wrapping_shape,
)
from shardproof.testing.strategies import hostile_json, hostile_names

_Path = tuple[str | int, ...]

_NOT_TEXT: tuple[object, ...] = (None, True, 0, 1.5, [], ["a"], {})
_NOT_A_NUMBER: tuple[object, ...] = (None, True, False, 1.0, 1.5, "", "1", [], [1], {})
_NOT_A_LIST: tuple[object, ...] = (None, True, 0, "", "[]", {}, {"0": 1})
_NOT_AN_OBJECT: tuple[object, ...] = (None, True, 0, "", "{}", [], [{}])
_FAR: tuple[object, ...] = (-1, 2**63, 10**30)
_HEX = "0123456789abcdef" * 4


def metadata_lies(layout: Layout) -> Iterator[bytes]:
    """Yield metadata files of a checkpoint that no reader may believe."""
    truth = checkpoint_document(layout)
    for path, wrongs in itertools.chain(_wrong_fields(truth), _wrong_tensors(truth)):
        for wrong in wrongs:
            if (lie := signed(_with(truth, path, wrong))) != signed(truth):
                yield lie
    for path in ((), ("sharding",), ("shards", 0), ("shards", 0, "tensors", 0)):
        inner: Any = truth
        for part in path:
            inner = inner[part]
        less = [{key: inner[key] for key in inner if key != name} for name in inner]
        for wrong in (inner | {"pickled": "gASULg=="}, *less):
            yield signed(_with(truth, path, wrong) if path else wrong)
    no_ranks = truth["sharding"] | {"shard_count": 0}
    yield signed(truth | {"world_size": 0, "sharding": no_ranks, "shards": []})
    # Its own checksum is not the last field, is not right, or not as it must be written.
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


def _with(truth: dict[str, Any], path: _Path, wrong: object) -> dict[str, Any]:
    """Return the document with another value in one place."""
    document = copy.deepcopy(truth)
    inner: Any = document
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = wrong
    return document


_Wrongs = Iterator[tuple[_Path, tuple[object, ...]]]


def _wrong_fields(truth: dict[str, Any]) -> _Wrongs:
    world_size, shards = truth["world_size"], truth["shards"]
    size, name, checksum = (shards[0][field] for field in ("file_size", "file", "checksum"))
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

    kinds = ("md5:", "sha512:", "sha256:", "xxh3-128:", "SHA256-TREE:", "blake3")
    checksums = [f"{checksum} ", checksum[:-1], checksum.upper(), _HEX[:32]]
    checksums += [kind + _HEX for kind in kinds]
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
    shapes: list[object] = [[0], [n + 1], [-n], [-1, -n], [float(n)], [str(n)], [True, n], [[n]]]
    shapes += [[*first["shape"], *[1] * 33], wrapping_shape(n, item), [2**62] * 32]
    dtypes = ("", "object", "float128", "f4", "<f4", "O", "Float32", "float32 ", "pickle")
    start, size = first["offset"], first["size"]
    path: _Path = ("shards", 0, "tensors")
    yield path, (*_NOT_A_LIST, [first, first], [second, first], [second])
    yield (*path, 0), _NOT_AN_OBJECT
    yield (*path, 0, "name"), (*_NOT_TEXT, "", 4097 * "n", second["name"])
    yield (*path, 0, "dtype"), (*_NOT_TEXT, *dtypes)
    yield (*path, 0, "shape"), (*_NOT_A_LIST, *shapes)
    yield (*path, 0, "offset"), (*_NOT_A_NUMBER, *_FAR, 0, start - 1, start + 64, 2**64 + start)
    yield (*path, 0, "size"), (*_NOT_A_NUMBER, *_FAR, 0, size - 1, size + 1, 2**64 + size)
    yield (*path, 1, "offset"), (start, second["offset"] + 64)


def hostile_metadata() -> st.SearchStrategy[bytes]:
    """Return a strategy for metadata that are no JSON, not quite, or name another file."""
    layout = Layout(format="checkpoint")
    # Without numbers in texts: with another one there, those would be right.
    whole = Layout(3, format="checkpoint", prefix=layout.prefix)
    broken = hostile_json(checkpoint_document(whole) | {"timestamp": "now"})
    # With a right checksum at the end, whatever stands before it.
    with_seal = broken.map(
        lambda text: sealed(text[:-1] + b', "checksum": "' if text.endswith(b"}") else text)
    )
    truth = checkpoint_document(layout)
    names = hostile_names().map(lambda name: signed(_with(truth, ("shards", 0, "file"), name)))
    return st.one_of(broken, with_seal, names)
