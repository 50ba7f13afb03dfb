"""Arrays of numpy, one in a file: the size that the header implies (`numpy.lib.format`).

numpy evaluates the text of a header as a literal; here a pattern takes it apart. What it does not
fit has no law: types with fields, and objects, which are a pickle. A file may have several arrays
one after the other, so what follows the first is only wrong if it is not another one.
"""

import functools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

from shardproof._base.messages import quoted
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch

__all__ = ["NOT_NPY", "ArrayHeader", "header_of", "item_bytes", "probe"]

NOT_NPY = "the header of a .npy file, version 1 to 3"

_MAGIC = b"\x93NUMPY"
_HEAD_BYTES = 256  # numpy's own headers of plain arrays have 128
_MAX_HEADER = 10_000  # numpy's own limit for headers that it does not trust
_LENGTH_BYTES = {b"\1\0": 2, b"\2\0": 4, b"\3\0": 4}  # by version

# Possessive, so that a hostile text of spaces takes no more than one pass.
_FIELD = (
    r"""\s*+(?P<quote{0}>['"])(?P<key{0}>descr|fortran_order|shape)(?P=quote{0})"""
    r"""\s*+:\s*+(?P<value{0}>'[^'"\\]*+'|"[^'"\\]*+"|True|False|\([0-9,L\s]*+\))\s*+"""
)
_FIELDS = re.compile(r"\s*+\{" + ",".join(_FIELD.format(i) for i in range(3)) + r",?\s*+\}\s*+")
_LENGTHS = re.compile(r"\d{1,19}")
_MAX_DIMENSIONS = 64
_TYPE = re.compile(r"[<>|=]?([biufcmMSUV])(\d{1,9})(?:\[\w{1,20}\])?")


class ArrayHeader(NamedTuple):
    """What a header says."""

    type: str  # such as "<u4"
    shape: tuple[int, ...]
    item_bytes: int
    start: int  # where the items begin, in bytes

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return math.prod(self.shape)

    @property
    def end(self) -> int:
        """Where they end, in bytes."""
        return self.start + self.n_items * self.item_bytes


def probe(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return how a file breaks its header's word."""
    header = header_of(read, size)
    if header is None or isinstance(header, Mismatch) or header.end == size:
        return header if isinstance(header, Mismatch) else None
    if header.end < size and read(len(_MAGIC), header.end) == _MAGIC:
        return None
    expected = f"{header.end} bytes for {header.n_items} items of type {quoted(header.type)}"
    return Mismatch(expected, f"{size} bytes")


def header_of(begin: Callable[[int], bytes], size: int) -> ArrayHeader | Mismatch | None:
    """Return what an array's header says, or why it says nothing; None where no size follows."""
    # ``begin`` returns so many first bytes, as what reads a file does.
    head = begin(_HEAD_BYTES)
    n_length = _LENGTH_BYTES.get(head[6:8], 0)
    if head[:6] != _MAGIC or not n_length or len(head) < 8 + n_length:
        return Mismatch(NOT_NPY, quoted(head[:12]))
    length = int.from_bytes(head[8 : 8 + n_length], "little")
    start = 8 + n_length + length
    if start > size:
        return Mismatch(f"a header of {length} bytes", f"{size} bytes in all")
    if length > _MAX_HEADER:
        return None
    head = head if start <= len(head) else begin(start)
    text = head[8 + n_length : start].decode("latin-1")
    if not text.lstrip().startswith("{"):
        return Mismatch(NOT_NPY, quoted(text))
    return _parsed(text, start)


@functools.lru_cache(maxsize=64)  # the shards of a directory mostly have one and the same
def _parsed(text: str, start: int) -> ArrayHeader | None:
    match = _FIELDS.fullmatch(text)
    fields = {match[f"key{i}"]: match[f"value{i}"] for i in range(3)} if match else {}
    kind = fields.get("descr", "").strip("'\"")
    item = item_bytes(kind)
    lengths = _LENGTHS.findall(fields.get("shape", ""))
    if len(fields) != 3 or item is None or len(lengths) > _MAX_DIMENSIONS:
        return None
    return ArrayHeader(kind, tuple(map(int, lengths)), item, start)


def item_bytes(kind: str) -> int | None:
    """Return how long an item of a type such as ``<u4`` is; None where that is not plain."""
    item = _TYPE.fullmatch(kind)
    return None if item is None else int(item[2]) * (4 if item[1] == "U" else 1)
