"""One-dimensional ``.npy`` files: what their header says, and reads from them that are whole.

The format is the one of `numpy.lib.format`: a magic string, a version, the length of the header,
and the header, which is text that looks like a dict. numpy evaluates that text as a literal; here a
pattern takes it apart, and what does not match is refused. Nothing is ever unpickled or mapped into
memory: a map of a file that is cut meanwhile kills the process without an error.
"""

import os
import re
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardproof._base.messages import quoted, told
from shardproof._base.opening import read_at
from shardproof.errors import ShardReadError
from shardproof.manifest import Mismatch

_MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000  # characters; numpy's own limit for headers that it does not trust
_LENGTH_BYTES = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}  # by version

# Possessive, so that a hostile text of spaces takes no more than one pass.
_FIELD = (
    r"""\s*+(?P<quote{0}>['"])(?P<key{0}>descr|fortran_order|shape)(?P=quote{0})"""
    r"""\s*+:\s*+(?P<value{0}>'[^'"\\]*+'|"[^'"\\]*+"|True|False|\([0-9,L\s]*+\))\s*+"""
)
_HEADER = re.compile(r"\{" + ",".join(_FIELD.format(i) for i in range(3)) + r",?\s*+\}\s*+")
_SHAPE = re.compile(r"\(\s*(\d{1,19})L?\s*,\s*\)")
_NUMBERS = re.compile(r"[<>|=]?(?:[iu][1248]|f[248])")


class NpyHeader(NamedTuple):
    """What a header says of the items."""

    dtype: np.dtype[Any]  # with its byte order
    n_items: int
    start: int  # in bytes from the beginning of the file

    @property
    def n_bytes(self) -> int:
        """Size that the file must have, neither less nor more."""
        return self.start + self.n_items * self.dtype.itemsize


class HeaderError(Exception):
    """A header that is none, or not of a one-dimensional array of numbers."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected {expected}, found {found}")
        self.mismatch = Mismatch(expected, found)


class CutHeaderError(HeaderError):
    """No header at all, or one that ends too early."""


def little_endian(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return the type of an integer as it is stored; refuse others."""
    found = np.dtype(dtype)
    if found.kind not in "iu":
        raise ValueError(f"token_dtype: expected an integer type, found {found}")
    return found.newbyteorder("<")


def read_header(fd: int) -> NpyHeader:
    """Return what an open file says of itself; at most 10 KiB of it are read."""
    start = read_at(fd, 12)
    n_length = _LENGTH_BYTES.get(start[6:8], 0)
    if start[:6] != _MAGIC or not n_length or len(start) < 8 + n_length:
        raise CutHeaderError("the header of a .npy file, version 1 to 3", quoted(start[:12]))
    length = int.from_bytes(start[8 : 8 + n_length], "little")
    if length > _MAX_HEADER:
        raise HeaderError(f"a header of at most {_MAX_HEADER} bytes", f"one of {length}")
    data = read_at(fd, length, 8 + n_length)
    if len(data) < length:
        raise CutHeaderError(f"a header of {length} bytes", f"{len(data)} bytes")

    text = data.decode("latin-1")
    match = _HEADER.fullmatch(text)
    fields = {match[f"key{i}"]: match[f"value{i}"] for i in range(3)} if match else {}
    if len(fields) != 3:  # or a key stands twice
        expected = "descr, fortran_order and shape of an array of numbers"
        raise HeaderError(expected, quoted(text.strip()))
    descr, shape = fields["descr"].strip("'\""), _SHAPE.fullmatch(fields["shape"])
    if shape is None or fields["fortran_order"] != "False":
        found = f"shape {quoted(fields['shape'])}, fortran_order {quoted(fields['fortran_order'])}"
        raise HeaderError("one dimension, in C order", found)
    if not _NUMBERS.fullmatch(descr):
        raise HeaderError("a type of numbers, such as '<u4'", quoted(descr))
    return NpyHeader(np.dtype(descr), int(shape[1]), 8 + n_length + length)


def wrong_size(header: NpyHeader, size: int) -> Mismatch | None:
    """Return how a file's size breaks its header's word; None where it keeps it."""
    if size == header.n_bytes:
        return None
    return Mismatch(f"{header.n_bytes} bytes for {header.n_items} items", f"{size} bytes")


def read_into(fd: int, items: npt.NDArray[Any], offset: int, path: str) -> None:
    """Fill a contiguous array with what a file has from an offset in bytes on."""
    memory = items.data.cast("B")
    n_read, number, problem = 0, None, "it is shorter than when it was opened"
    try:
        while n_read < len(memory) and (n := os.preadv(fd, [memory[n_read:]], offset + n_read)):
            n_read += n
    except OSError as error:
        number, problem = error.errno, error.strerror or told(error)
    if n_read < len(memory):
        raise ShardReadError(
            problem, path=path, offset=offset, expected=len(memory), found=n_read, errno=number
        )
