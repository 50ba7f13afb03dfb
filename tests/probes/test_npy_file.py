"""A file of numpy has the size that its header implies, and the header is only read, not run."""

import io
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardproof._base.opening import Descriptor
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import npy
from tests.probes.probing import asked


def saved(*arrays: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(file, array, version, allow_pickle=True)
    return file.getvalue()


def probe(data: bytes) -> Mismatch | None:
    return asked(lambda read, size: npy.probe(ExpectedFile(name="a.npy"), read, size), data)


def of_text(text: str, data: bytes = b"", version: int = 1) -> bytes:
    encoded = text.encode("utf-8")
    length = len(encoded).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + encoded + data


TYPES = ["?", "u1", "<i4", ">f8", "c16", "M8[ns]", "m8[25s]", "S5", "U7", "V9", "f2", "u8"]


@given(
    st.sampled_from(TYPES),
    st.lists(st.integers(0, 5), max_size=4),
    st.sampled_from([(1, 0), (2, 0), (3, 0), None]),
    st.booleans(),
)
def test_whole_files_are_and_others_are_not(dtype, shape, version, fortran) -> None:
    array = np.zeros(shape, dtype, order="F" if fortran else "C")
    data = saved(array, version=version)
    assert probe(data) is None
    header = asked(npy.header_of, data)
    assert isinstance(header, npy.ArrayHeader)
    assert (header.shape, header.n_items, header.end) == (array.shape, array.size, len(data))
    expected = f"{len(data)} bytes for {array.size} items of type {header.type!r}"
    found = f"{len(data) + 1} bytes"
    assert probe(data + b"x") == Mismatch(expected=expected, found=found)
    if array.nbytes:
        found = f"{len(data) - 1} bytes"
        assert probe(data[:-1]) == Mismatch(expected=expected, found=found)


def test_several_arrays_in_a_file() -> None:
    assert probe(saved(np.arange(3), np.arange(4))) is None


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}, []], object),
        np.zeros(3, [("a", "<i4"), ("b", "<f8", (3,))]),
        np.zeros(2, [(f"a field with a long name {i}", "<i4") for i in range(900)]),
    ],
    ids=["objects", "fields", "many fields"],
)
def test_types_without_a_law(array: np.ndarray) -> None:
    data = saved(array, version=(2, 0))
    assert probe(data) is None
    assert probe(data + b"x") is None


@pytest.mark.parametrize(
    "text",
    [
        "{'shape': (3,), 'fortran_order': False, 'descr': '<u2'}",
        '{"descr": "<u2", "fortran_order": True, "shape": (3L,)}\n',
        " { 'descr' : '<u2' , 'fortran_order' : False , 'shape' : ( 1 , 3 ) , } ",
        "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), " + " " * 500 + "}",
    ],
)
def test_other_writers(text: str) -> None:
    assert probe(of_text(text, bytes(6))) is None
    assert probe(of_text(text, bytes(5))) is not None


@pytest.mark.parametrize(
    ("data", "expected", "found"),
    [
        (b"", npy.NOT_NPY, "b''"),
        (bytes(200), npy.NOT_NPY, repr(bytes(12))),
        (b"\x93NUMPY\x04\0\x10\0{}", npy.NOT_NPY, r"b'\x93NUMPY\x04\x00\x10\x00{}'"),
        (b"\x93NUMPY\1\0v", npy.NOT_NPY, r"b'\x93NUMPY\x01\x00v'"),
        (b"\x93NUMPY\1\0v\0{", "a header of 118 bytes", "11 bytes in all"),
        (of_text("\0" * 118, bytes(10)), npy.NOT_NPY, "'" + r"\x00" * 80 + "'... (118 characters)"),
    ],
)
def test_no_header(data: bytes, expected: str, found: str) -> None:
    assert probe(data) == Mismatch(expected=expected, found=found)


@pytest.mark.parametrize(
    "text",
    [
        "{'descr': '<u4', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}",
        "{'descr': '<u4', 'fortran_order': False, 'shape': (" + "9," * 4000 + ")}",
        "{'descr': '<u4', 'fortran_order': False, 'shape': ()" + " " * 9000,
        "{" * 9000,
        "{'descr': __import__('os').abort(), 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '<u" + "9" * 5000 + "', 'fortran_order': False, 'shape': (3,)}",
    ],
)
def test_hostile_texts(text: str) -> None:
    found = probe(of_text(text))
    assert found is None or len(found.expected + found.found) < 8000


def test_a_field_that_stands_twice_makes_no_law() -> None:
    assert probe(of_text("{'descr': '<u4', 'descr': '<u4', 'shape': (3,)}")) is None


def test_what_is_read_of_a_header_is_bounded() -> None:
    def is_read(fd: Descriptor, _: int) -> None:
        os.truncate(fd, 2**29)
        tracemalloc.start()
        assert npy.probe(ExpectedFile(name="a.npy"), fd, 2**29) is None
        assert tracemalloc.get_traced_memory()[1] < 2**20
        tracemalloc.stop()

    asked(is_read, b"\x93NUMPY\2\0" + (2**28).to_bytes(4, "little"))
