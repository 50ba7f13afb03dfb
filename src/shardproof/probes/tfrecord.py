"""The laws of a TFRecord file: each record says how long it is, and has two checksums.

``u64 length``, ``u32`` masked CRC-32C of those 8 bytes, the data, ``u32`` masked CRC-32C of the
data (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details). TensorFlow
may pack the whole file by gzip or zlib; nothing but the bytes tells.
"""

import functools
import struct

from shardproof._base.messages import quoted
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import packed
from shardproof.probes.crc32c import crc32c

__all__ = ["probe", "prove"]

_HEAD = struct.Struct("<QI")
_FOOT_BYTES = 4
_BLOCK_BYTES = 4096
_MOST_RECORDS = 4096  # that a look follows: a file of many more is told by its begin alone
_PIECE_BYTES = 2**16
_ZLIB = tuple(bytes([n << 4 | 8]) for n in range(8))  # first bytes, by windows (RFC 1950)


def probe(_: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return where records do not follow one another up to the end; of a packed file the first."""
    kind = _packed_by(read)
    if kind is not None:
        wrong = packed.probe(kind, read, size)
        return wrong or packed.wrong_inside(read, _wrong_begin, whole=False)
    begin = at = start = 0
    block = b""
    for _record in range(_MOST_RECORDS):
        if at >= size:
            break
        if at + _HEAD.size > start + len(block):
            start, block = at, read(_BLOCK_BYTES, at)
        head = block[at - start : at - start + _HEAD.size]
        n_bytes = _length_in(head)
        if n_bytes is None:
            return _no_length(head, at)
        begin, at = at, at + _HEAD.size + n_bytes + _FOOT_BYTES
    if at > size:
        expected = f"a record of {n_bytes} bytes at byte {begin}"
        return Mismatch(expected, f"an end after {size} bytes")
    return None


def prove(_: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
    """Return whether a file's checksums prove it: of one that is not packed, a part may be gone."""
    if kind := _packed_by(read):
        return packed.prove(kind, read, size, _wrong_record)
    plain = (read(_PIECE_BYTES, at) for at in range(0, size, _PIECE_BYTES))
    return _wrong_record(packed.Forward(plain)) or False


def _packed_by(read: Read) -> str | None:
    """Return what packs a file: zlib has two bytes to be known by, which may be a length's, too."""
    head = read(_HEAD.size)
    if _length_in(head) is not None:
        return None
    is_zlib = head[:1] in _ZLIB and int.from_bytes(head[:2], "big") % 31 == 0
    kind = "zlib" if is_zlib else packed.kind_of(head)
    return kind if kind in {"gzip", "zlib"} else None


def _wrong_begin(read: Read) -> Mismatch | None:
    head = read(_HEAD.size, 0)
    return _no_length(head, 0) if len(head) == _HEAD.size and _length_in(head) is None else None


def _no_length(head: bytes, at: int) -> Mismatch:
    return Mismatch(f"the length of a record at byte {at}", quoted(head))


def _length_in(head: bytes) -> int | None:
    """Return the length that a record begins with; None where its checksum is another."""
    n_bytes, checksum = _HEAD.unpack(head.ljust(_HEAD.size, b"\0"))
    return n_bytes if len(head) == _HEAD.size and _of_length(head[:8]) == checksum else None


@functools.lru_cache  # records are as long as others
def _of_length(data: bytes) -> int:
    return _masked(crc32c(data))


def _wrong_record(read: Read) -> Mismatch | None:
    """Return which record has another checksum; a long one is never held as a whole."""
    at = 0
    while head := read(_HEAD.size, at):
        n_bytes = _length_in(head)
        if n_bytes is None:
            return _no_length(head, at)
        checksum, left, end = 0, n_bytes, at + _HEAD.size + n_bytes
        while left and (piece := read(min(left, _PIECE_BYTES), end - left)):
            checksum, left = crc32c(piece, checksum), left - len(piece)
        if left or read(_FOOT_BYTES, end) != _masked(checksum).to_bytes(_FOOT_BYTES, "little"):
            return Mismatch(f"the data of the record at byte {at}, by their checksum", "others")
        at = end + _FOOT_BYTES
    return None


def _masked(checksum: int) -> int:
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
