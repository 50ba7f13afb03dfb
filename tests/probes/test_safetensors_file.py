"""Files of safetensors: what the library writes is sound, and each broken law is told."""

import json
import struct
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st

from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes.safetensors import SafetensorsHeader, header_of, probe
from tests.helpers.drawing import examples
from tests.probes.probing import asked

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES += ["float16", "float32", "float64", "complex64"]


def entry(begin: int, end: int, dtype: str = "U8", shape: list[int] | None = None) -> Any:
    return {"dtype": dtype, "shape": shape or [end - begin], "data_offsets": [begin, end]}


def file_of(header: Any, n_bytes: int) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(n_bytes)


def look(data: bytes) -> Mismatch | None:
    return asked(lambda read, size: probe(ExpectedFile(name="x.safetensors"), read, size), data)


def header_in(data: bytes) -> Any:
    return asked(header_of, data)


@given(
    tensors=st.dictionaries(
        st.text(max_size=20).filter(lambda name: name != "__metadata__"),
        st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4)),
        max_size=8,
    ),
    # Without tensors the library writes `{},"__metadata__":{}}`, which it can't read itself.
    metadata=st.none()
    | st.dictionaries(st.text(max_size=9), st.text(max_size=9), min_size=1, max_size=3),
)
@example(tensors={'{"__metadata__":{}}': ("uint8", [2])}, metadata={'"__metadata__":{': '}"\\'})
@examples(300)
def test_what_the_library_writes_is_sound(
    tensors: dict[str, tuple[str, list[int]]], metadata: dict[str, str] | None
) -> None:
    arrays = {name: np.zeros(shape, dtype) for name, (dtype, shape) in tensors.items()}
    data = safetensors.numpy.save(arrays, metadata)
    assert look(data) is None
    header = header_in(data)
    assert header.tensors.keys() == tensors.keys()
    assert {*header.left_out()} == {*(metadata or {})}


def test_every_other_size_is_told() -> None:
    data = safetensors.numpy.save({"a": np.ones(8), "b": np.ones(3, "u1")})
    for n_bytes in range(1, len(data)):
        assert look(data[:n_bytes]) is not None, n_bytes
    assert look(data + b"\0") == Mismatch(expected="67 bytes of tensors", found="68 bytes")
    assert look(data[:-1]) == Mismatch(expected="67 bytes of tensors", found="66 bytes")


NEGATIVE = {"dtype": "U8", "shape": [1], "data_offsets": [0, -1]}


@pytest.mark.parametrize(
    ("header", "n_bytes", "expected", "found"),
    [
        ({"a": entry(0, 4, "F32", [2])}, 4, "8 bytes of 'a', by its shape", "bytes 0 to 4"),
        ({"a": entry(4, 0, "F9", [1])}, 0, "a tensor at byte 0", "one from 4 to 0"),
        (
            {"a": entry(0, 4), "b": entry(4, 2, "F9", [1])},
            2,
            "a tensor at byte 4",
            "one from 4 to 2",
        ),
        ({"a": entry(0, 4), "b": entry(5, 8)}, 8, "a tensor at byte 4", "one from 5 to 8"),
        ({"a": entry(0, 4), "b": entry(3, 8)}, 8, "a tensor at byte 4", "one from 3 to 8"),
        ({"a": entry(1, 4)}, 4, "a tensor at byte 0", "one from 1 to 4"),
        ({"a": entry(0, 4)}, 0, "4 bytes of tensors", "0 bytes"),
        ({}, 7, "0 bytes of tensors", "7 bytes"),
        (b"[]", 0, "a header of safetensors", r"b'\x02\x00\x00\x00\x00\x00\x00\x00[]'"),
        (b" {}", 0, "a header of safetensors", r"b'\x03\x00\x00\x00\x00\x00\x00\x00 {}'"),
    ],
)
def test_a_broken_law_is_told(header: Any, n_bytes: int, expected: str, found: str) -> None:
    assert look(file_of(header, n_bytes)) == Mismatch(expected, found)


@pytest.mark.parametrize(
    "header",
    [
        *(b"{", b"{}}", b'{"a"}', b'{"a": 1}', b'{"\xff": {}}', b'{"__metadata__": []}'),
        *({"a": NEGATIVE}, {"a": {}}, {"a": entry(0, 2**64)}, {"a": entry(0, 1) | {"dtype": 1}}),
        {"a": entry(0, 1) | {"x": json.loads("[" * 900 + "]" * 900)}, "b": 1},
        b'{"a": {"dtype": "U8", "x": ' + b"[" * 200_000,
    ],
)
def test_a_header_that_is_no_header_is_told(header: Any) -> None:
    assert getattr(look(file_of(header, 1)), "expected", None) == "a header of safetensors in JSON"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "a header of safetensors"),
        (b"\7\0", "a header of safetensors"),
        (bytes(64), "a header of safetensors"),
        (struct.pack("<Q", 100_000_001) + b"{}", "a header of safetensors"),
        (struct.pack("<Q", 100_000_000) + b"{}", "a header of 100000000 bytes"),
        (b"<!doctype html><html>404", "a header of safetensors"),
    ],
)
def test_other_files_are_told(data: bytes, expected: str) -> None:
    assert getattr(look(data), "expected", None) == expected


UNKNOWN = {"a": entry(0, 6, "F4", [12]), "b": entry(6, 12, "F4", [6]), "c": entry(12, 13, "I7")}
"""Newer types, and those of less than a byte, of which writers state other shapes."""

METADATA = (None, {}, {"format": "pt"}, {"a": '"}{'})
MANY = {f"model.layers.{i}.weight": entry(i, i + 1) for i in range(2000)}


@pytest.mark.parametrize(
    ("header", "n_bytes"),
    [
        (UNKNOWN, 13),
        ({"b": entry(4, 8), "c": entry(4, 4), "a": entry(0, 4)}, 8),  # in any order
        *(({"a": entry(0, 1), "__metadata__": each}, 1) for each in METADATA),
        (MANY, 2000),  # of more than the first bytes that are read
    ],
)
def test_other_headers_are_sound(header: Any, n_bytes: int) -> None:
    assert look(file_of(header, n_bytes)) is None
    assert look(file_of(header, n_bytes - 1)) is not None


def test_a_header_that_is_too_long_to_read_is_passed_over() -> None:
    """Even though the format's own reader would read it."""
    data = struct.pack("<Q", 2**24 + 1) + b"{" + bytes(2**24)
    assert look(data) is None
    assert header_in(data) is None


def test_a_header_takes_little_memory() -> None:
    """Whatever it says: seven bytes for each tensor that is none."""
    data = file_of(b"{" + b'"a":{},' * (2**24 // 7 - 1) + b'"":{}}', 0)

    def is_read(read: Read, size: int) -> int:
        tracemalloc.start()
        assert isinstance(header_of(read, size), Mismatch)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert asked(is_read, data) < 2**26


def test_a_shape_that_lies_takes_no_time() -> None:
    mismatch = look(file_of({"a": entry(0, 4, "F32", [2**62] * 64)}, 4))
    assert mismatch is not None
    assert len(mismatch.expected) < 200
    start = time.process_time()
    assert look(file_of({"a": entry(0, 4, "F32", [2**62] * 500_000)}, 4)) is None
    assert time.process_time() - start < 2


GOOD = safetensors.numpy.save({"a": np.ones(8), "b": np.ones(3, "u1")}, {"format": "np"})


@given(data=st.data())
@examples(400)
def test_no_file_makes_it_fail(data: st.DataObject) -> None:
    broken = bytearray(GOOD)
    for _ in range(data.draw(st.integers(0, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    tail = data.draw(st.binary(max_size=9))
    whole = bytes(broken[: data.draw(st.integers(0, len(broken)))]) + tail
    told = header_in(whole)
    assert isinstance(told, (Mismatch, SafetensorsHeader))
    if isinstance(told, SafetensorsHeader):
        told.left_out()
        ends = [info.data_offsets[1] for info in told.tensors.values()]
        assert 8 + int.from_bytes(whole[:8], "little") + max(ends, default=0) == len(whole)


def test_metadata_that_are_no_json_name_nothing() -> None:
    for metadata in (b'{"a" "b"}', b'{"\xff":"b"}'):
        text = b'{"__metadata__":' + metadata + b',"a":' + json.dumps(entry(0, 1)).encode() + b"}"
        assert [*header_in(file_of(text, 1)).left_out()] == []
