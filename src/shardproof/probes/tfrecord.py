"""The laws of a TFRecord file: each record says how long it is, and has two checksums.

``u64 length``, ``u32`` masked CRC-32C of those 8 bytes, the data, ``u32`` masked CRC-32C of the
data (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details).
"""

import functools
import struct

from shardproof._base.messages import quoted
from shardproof._base.opening import read_at
from shardproof.manifest import Mismatch, PromisedFile

__all__ = ["probe"]

_GZIP = b"\x1f\x8b"
_HEAD = struct.Struct("<QI")
_FOOT_BYTES = 4
_BLOCK_BYTES = 4096
_MOST_RECORDS = 4096
"""That a look follows: a file of many more is told by its begin alone."""


def probe(_: PromisedFile, fd: int, size: int) -> Mismatch | None:
    """Return where records do not follow one another up to the end; of a packed file nothing."""
    if read_at(fd, 2) == _GZIP:
        return None
    begin = at = start = 0
    block = b""
    for _record in range(_MOST_RECORDS):
        if at >= size:
            break
        if at + _HEAD.size > start + len(block):
            start, block = at, read_at(fd, _BLOCK_BYTES, at)
        head = block[at - start : at - start + _HEAD.size]
        n_bytes, checksum = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
        if len(head) < _HEAD.size or _masked_crc32c(head[:8]) != checksum:
            return Mismatch(expected=f"the length of a record at byte {at}", found=quoted(head))
        begin, at = at, at + _HEAD.size + n_bytes + _FOOT_BYTES
    if at > size:
        expected = f"a record of {n_bytes} bytes at byte {begin}"
        return Mismatch(expected=expected, found=f"an end after {size} bytes")
    return None


@functools.lru_cache  # records are as long as others
def _masked_crc32c(data: bytes) -> int:
    checksum = _crc32c(data)
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
