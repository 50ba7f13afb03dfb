"""The laws of a TFRecord file: each record says how long it is, and has two checksums.

``u64 length``, ``u32`` masked CRC-32C of those 8 bytes, the data, ``u32`` masked CRC-32C of the
data (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from shardproof._base.messages import quoted
from shardproof._base.opening import read_at
from shardproof.manifest import Mismatch, PromisedFile

__all__ = ["probe"]

_GZIP = b"\x1f\x8b"
_HEAD = struct.Struct("<QI")
_FOOT_BYTES = 4
_MOST_RECORDS = 4096
"""That a look follows: a file of many more is told by its begin alone."""


class _RecordAt(NamedTuple):
    begin: int
    n_bytes: int


def probe(_: PromisedFile, fd: int, size: int) -> Mismatch | None:
    """Return where records do not follow one another up to the end; of a packed file nothing."""
    if read_at(fd, 2) == _GZIP:
        return None
    at = 0
    for record in _records(fd, size):
        if isinstance(record, Mismatch):
            return record
        at = record.begin + _HEAD.size + record.n_bytes + _FOOT_BYTES
        if at > size:
            expected = f"a record of {record.n_bytes} bytes at byte {record.begin}"
            return Mismatch(expected=expected, found=f"an end after {size} bytes")
    return None


def _records(fd: int, size: int) -> Iterator[_RecordAt | Mismatch]:
    at = 0
    for _ in range(_MOST_RECORDS):
        if at >= size:
            return
        head = read_at(fd, _HEAD.size, at)
        n_bytes, checksum = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
        if len(head) < _HEAD.size or _masked(_crc32c(head[:8])) != checksum:
            yield Mismatch(expected=f"the length of a record at byte {at}", found=quoted(head))
            return
        yield _RecordAt(at, n_bytes)
        at += _HEAD.size + n_bytes + _FOOT_BYTES


def _masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc32c(data: bytes) -> int:
    """Return the CRC-32C of a few bytes (Castagnoli's polynomial, reflected)."""
    checksum = 0xFFFFFFFF
    for byte in data:
        checksum = _TABLE[(checksum ^ byte) & 255] ^ checksum >> 8
    return checksum ^ 0xFFFFFFFF


def _table() -> tuple[int, ...]:
    numbers = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)  # noqa: PLW2901
        numbers.append(number)
    return tuple(numbers)


_TABLE = _table()
