"""The laws of a GGUF file: its header says where each tensor is, and so where the file ends.

``GGUF``, a version, the numbers of tensors and of keys; the keys with their values; the names,
shapes, types and offsets of the tensors; the tensors, each aligned
(https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Each part of a model that was split
says which it is, and of how many.
"""

import math
import re
import struct
from typing import Any

from shardproof._base.messages import quoted, told
from shardproof._base.opening import Read, file_of
from shardproof.manifest import ExpectedFile, Mismatch

__all__ = ["probe"]

_VERSIONS = (2, 3)
_MAX_HEADER_BYTES = 2**25  # vocabularies take some MiB
_NUMBERS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_TEXT, _ARRAY = 8, 9
_MOST_DIMENSIONS, _MAX_ALIGNMENT = 8, 2**20
_NAME = re.compile(r".*-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
_TYPES = (
    *((0, 1, 4), (1, 1, 2), (2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (8, 32, 34)),
    *((10, 256, 84), (11, 256, 110), (12, 256, 144), (13, 256, 176), (14, 256, 210)),
    *((15, 256, 292), (16, 256, 66), (17, 256, 74), (18, 256, 98), (19, 256, 50), (20, 32, 18)),
    *((21, 256, 110), (22, 256, 82), (23, 256, 136), (24, 1, 1), (25, 1, 2), (26, 1, 4)),
    *((27, 1, 8), (28, 1, 8), (29, 256, 56), (30, 1, 2), (34, 256, 54), (35, 256, 66)),
    *((39, 32, 17), (40, 64, 36), (41, 128, 18)),
)
_BLOCKS = {number: (n_items, n_bytes) for number, n_items, n_bytes in _TYPES}
"""By the type of a tensor: the items of a block, and its bytes."""


class _UnknownHeaderError(Exception):
    """A tensor is of a type that came later, or the header is longer than what is read."""


def probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with a header, with the size that it implies, or with its part."""
    head = read(8)
    version = int.from_bytes(head[4:], "little")
    if head[:4] != b"GGUF" or not version:
        return Mismatch("the beginning of GGUF", quoted(head))
    if version not in _VERSIONS:  # nor where numbers are big-endian
        return None
    try:
        end, alignment, values = _HeaderReader(read, size).header()
    except (EOFError, ValueError, struct.error) as error:
        return Mismatch(f"a header of GGUF within {size} bytes", told(error))
    except _UnknownHeaderError:
        return None
    if not end <= size <= -(-end // alignment) * alignment:
        return Mismatch(f"{end} bytes, as the header says", f"{size} bytes")
    return _wrong_part(promised.name, values)


def _wrong_part(name: str, values: dict[bytes, Any]) -> Mismatch | None:
    named, n_parts = _NAME.fullmatch(name), values.get(b"split.count")
    if named is None or not n_parts:
        return None
    expected = f"part {int(named[1])} of {int(named[2])}"
    found = f"part {(values.get(b'split.no') or 0) + 1} of {n_parts}"
    return None if found == expected else Mismatch(expected, found)


class _HeaderReader:
    """Reads a header step by step; raises `EOFError` where it goes on behind the file."""

    def __init__(self, read: Read, size: int) -> None:
        self._file = file_of(read, size)
        self._size, self._at = size, self._file.seek(8)

    def header(self) -> tuple[int, int, dict[bytes, Any]]:
        """Return where the last tensor ends, to what tensors are aligned, and the keys' values."""
        n_tensors, n_keys = self._number("Q"), self._number("Q")
        values = {self._text(): self._value(self._number("I")) for _ in range(n_keys)}
        ends = [self._tensor_end() for _ in range(n_tensors)]
        alignment = values.get(b"general.alignment") or 32
        if not isinstance(alignment, int) or not 0 < alignment < _MAX_ALIGNMENT:
            raise ValueError(f"an alignment of {alignment}")
        begin = -(-self._at // alignment) * alignment
        return begin + max(ends) if ends else self._at, alignment, values

    def _take(self, n_bytes: int) -> bytes:
        self._at += n_bytes
        if self._at > self._size:
            raise EOFError("a longer one: the file is cut")
        if self._at > _MAX_HEADER_BYTES:
            raise _UnknownHeaderError
        return self._file.read(n_bytes)

    def _number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _text(self) -> bytes:
        return self._take(self._number("Q"))

    def _value(self, kind: int, n_items: int = 1, depth: int = 0) -> Any:
        """Return a number; of texts and arrays, which may hold arrays, nothing is kept."""
        if kind == _ARRAY and depth < _MOST_DIMENSIONS:
            for _ in range(n_items):
                self._value(self._number("I"), self._number("Q"), depth + 1)
        elif kind == _TEXT:
            for _ in range(n_items):
                self._text()
        elif kind not in _NUMBERS:
            raise ValueError(f"a value of type {kind} at byte {self._at}")
        elif n_items == 1:
            return self._number(_NUMBERS[kind])
        else:
            self._take(n_items * struct.calcsize(f"<{_NUMBERS[kind]}"))
        return None

    def _tensor_end(self) -> int:
        """Return where a tensor ends, from the begin of the first on."""
        self._text()
        n_dimensions = self._number("I")
        if n_dimensions > _MOST_DIMENSIONS:
            raise ValueError(f"{n_dimensions} dimensions at byte {self._at}")
        n_items = math.prod(self._number("Q") for _ in range(n_dimensions))
        kind, begin = self._number("I"), self._number("Q")
        if kind not in _BLOCKS:
            raise _UnknownHeaderError
        n_of_block, n_bytes = _BLOCKS[kind]
        return int(begin + -(-n_items // n_of_block) * n_bytes)
