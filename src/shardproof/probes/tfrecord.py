"""The laws of a TFRecord file: each record says how long it is, and has two checksums.

``u64 length``, ``u32`` masked CRC-32C of those 8 bytes, the data, ``u32`` masked CRC-32C of the
data (https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details). TensorFlow
may pack the whole file by gzip or zlib; nothing but the bytes tells.
"""

import functools
import struct
from collections.abc import Callable, Iterable

from shardproof._base.messages import quoted
from shardproof._base.opening import read_at
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import packed

__all__ = ["probe", "prove"]

_HEAD = struct.Struct("<QI")
_FOOT_BYTES = 4
_BLOCK_BYTES = 4096
_MOST_RECORDS = 4096
"""That a look follows: a file of many more is told by its begin alone."""

_PIECE_BYTES = 2**16
_BEGIN = 0xFFFFFFFF
"""The state of CRC-32C before the first byte; the checksum is the last state, inverted."""

_ZLIB = tuple(bytes([n << 4 | 8]) for n in range(8))
"""The first byte, by the window of which size there was (RFC 1950)."""

_Read = Callable[[int, int], bytes]


def probe(_: ExpectedFile, fd: int, size: int) -> Mismatch | None:
    """Return where records do not follow one another up to the end; of a packed file the first."""
    kind = _packed_by(fd)
    if kind is not None:
        wrong = packed.probe(kind, fd, size)
        return wrong or packed.wrong_inside(fd, _wrong_begin, whole=False)
    begin = at = start = 0
    block = b""
    for _record in range(_MOST_RECORDS):
        if at >= size:
            break
        if at + _HEAD.size > start + len(block):
            start, block = at, read_at(fd, _BLOCK_BYTES, at)
        head = block[at - start : at - start + _HEAD.size]
        n_bytes = _length_in(head)
        if n_bytes is None:
            return _no_length(head, at)
        begin, at = at, at + _HEAD.size + n_bytes + _FOOT_BYTES
    if at > size:
        expected = f"a record of {n_bytes} bytes at byte {begin}"
        return Mismatch(expected, f"an end after {size} bytes")
    return None


def prove(_: ExpectedFile, fd: int, size: int) -> Mismatch | bool:
    """Return whether a file's checksums prove it: of one that is not packed, a part may be gone."""
    if _packed_by(fd) is not None:
        return packed.wrong_inside(fd, _wrong_record) or True
    plain = (read_at(fd, _PIECE_BYTES, at) for at in range(0, size, _PIECE_BYTES))
    return _wrong_record(packed.Forward(plain)) or False


def _packed_by(fd: int) -> str | None:
    """Return what packs a file: zlib has two bytes to be known by, which may be a length's, too."""
    head = read_at(fd, _HEAD.size)
    if _length_in(head) is not None:
        return None
    is_zlib = head[:1] in _ZLIB and int.from_bytes(head[:2], "big") % 31 == 0
    kind = "zlib" if is_zlib else packed.kind_of(head)
    return kind if kind in {"gzip", "zlib"} else None


def _wrong_begin(read: _Read) -> Mismatch | None:
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
    return _masked(_behind(data, _BEGIN, 8))


def _wrong_record(read: _Read) -> Mismatch | None:
    """Return which record has another checksum; a long one is never held as a whole."""
    at = 0
    while head := read(_HEAD.size, at):
        n_bytes = _length_in(head)
        if n_bytes is None:
            return _no_length(head, at)
        state, left, end = _BEGIN, n_bytes, at + _HEAD.size + n_bytes
        while left and (piece := read(min(left, _PIECE_BYTES), end - left)):
            state, left = _behind_data(piece, state), left - len(piece)
        if left or read(_FOOT_BYTES, end) != _masked(state).to_bytes(_FOOT_BYTES, "little"):
            return Mismatch(f"the data of the record at byte {at}, by their checksum", "others")
        at = end + _FOOT_BYTES
    return None


def _masked(state: int) -> int:
    checksum = state ^ _BEGIN
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _behind_data(data: bytes, state: int) -> int:
    """Return the state of CRC-32C behind some data: by two bytes at once in half the time."""
    state = _behind(struct.unpack_from(f"<{len(data) // 2}H", data), state, 16)
    return _behind(data[len(data) & -2 :], state, 8)


def _behind(words: Iterable[int], state: int, n_bits: int) -> int:
    table, mask = _table(n_bits), 2**n_bits - 1
    for word in words:
        state = table[(state ^ word) & mask] ^ state >> n_bits
    return state


@functools.cache
def _table(n_bits: int) -> list[int]:
    """Return what becomes of each state of so many bits (Castagnoli's polynomial, reflected)."""
    table = list(range(2**n_bits))
    for _ in range(n_bits):
        table = [state >> 1 ^ (0x82F63B78 if state & 1 else 0) for state in table]
    return table
