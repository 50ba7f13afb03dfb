"""The law of an ArrayRecord file: chunks in a row, and a postscript in the last block.

It is a file of Riegeli (https://github.com/google/riegeli/tree/master/doc) with whole blocks of 64
KiB, each of which begins with 24 bytes that lie between those of a chunk. A chunk has a header of
40 bytes, with the size of its data. The last block says where the footer is.
"""

import re
import struct

from shardproof._base.messages import quoted
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch

__all__ = ["probe"]

_BLOCK_BYTES, _BLOCK_HEAD_BYTES, _CHUNK_HEAD_BYTES = 2**16, 24, 40
_CHUNK_HEAD = struct.Struct("<8xQ8xB")  # between two hashes, and before the number of records
_SIGNATURE = bytes.fromhex("83af70d10d884a3f") + bytes(8) + b"\x40" + bytes(7)
_KINDS = b"smprt"
_MOST_CHUNKS = 4096  # that a look follows; the postscript is asked in any case
_POSTSCRIPT = re.compile(
    rb"\x08([\x80-\xff]{0,9}[\0-\x7f])\x10\xde\xc0\xeb\xfe\x84\xce\xc3\xc9\x71"
)
"""The offset of the footer, and a magic number, as protobuf writes them."""


def probe(_promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return where chunks do not follow one another to the end, or that the footer is not there."""
    head = read(len(_SIGNATURE))
    if head != _SIGNATURE:
        return Mismatch("the signature of ArrayRecord", quoted(head))
    if size % _BLOCK_BYTES:
        return Mismatch("whole blocks of 64 KiB", f"{size} bytes")
    found = _POSTSCRIPT.search(read(2**10, size - _BLOCK_BYTES))
    if found is None:
        return Mismatch("a postscript in the last block", "none: the writer was not closed")
    footer = sum((byte & 127) << 7 * n for n, byte in enumerate(found[1]))
    if footer >= size or _next_chunk(read, footer) is None:
        return Mismatch(f"the footer at byte {footer}, of {size}", "other bytes")
    begin = at = 0
    for _chunk in range(_MOST_CHUNKS):
        if at >= size:
            break
        begin, end = at, _next_chunk(read, at)
        if end is None:
            return Mismatch(f"a chunk at byte {begin}", quoted(read(12, at)))
        at = end
    expected = f"the chunk at byte {begin}, to byte {at}"
    return Mismatch(expected, f"{size} bytes") if at > size else None


def _next_chunk(read: Read, at: int) -> int | None:
    """Return where the chunk after one begins; None where there is none."""
    data = read(_BLOCK_HEAD_BYTES + _CHUNK_HEAD_BYTES, at)
    to_block = -at % _BLOCK_BYTES
    head = data[:to_block] + data[to_block + _BLOCK_HEAD_BYTES :]
    if len(head) < _CHUNK_HEAD_BYTES:
        return None
    n_bytes, kind = _CHUNK_HEAD.unpack_from(head)
    return _behind(at, _CHUNK_HEAD_BYTES + n_bytes) if kind in _KINDS else None


def _behind(at: int, n_bytes: int) -> int:
    """Return the position behind so many bytes, between which heads of blocks lie."""
    n_own = _BLOCK_BYTES - _BLOCK_HEAD_BYTES
    block, inside = divmod(at, _BLOCK_BYTES)
    block, rest = divmod(block * n_own + max(0, inside - _BLOCK_HEAD_BYTES) + n_bytes, n_own)
    return block * _BLOCK_BYTES + (rest and _BLOCK_HEAD_BYTES + rest)
