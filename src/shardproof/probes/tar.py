"""Tar archives, plain or packed as a whole: their headers, and the mark at their end.

An archive is a row of blocks of 512 bytes: before each member a header with a checksum of its own,
at the end two blocks of zeros, and often more of them (pax(1p), section "ustar Interchange
Format"). A reader takes an archive that was cut between two members for a shorter one, without an
error: so one without an end mark is a finding, though a few writers leave the mark out.

What is in a file counts, and not how it is called, since readers go by that too.
"""

import functools
import zlib

from shardproof._base.messages import quoted
from shardproof._base.opening import Read
from shardproof.manifest import ExpectedFile, Mismatch
from shardproof.probes import packed

__all__ = ["BLOCK_BYTES", "is_header", "probe", "prove"]

BLOCK_BYTES = 512

_NO_BYTES = bytes(BLOCK_BYTES)
_END_BYTES = 2 * BLOCK_BYTES
_END = bytes(_END_BYTES)
_NO_END = Mismatch("two blocks of zeros at the end", "other bytes: the copy may have stopped")
_ENDLESS = 2**63
_RECORD_BYTES = 20 * BLOCK_BYTES  # filled up with zeros by most; all of an archive of no member
_FIRST_BYTES = 3 * BLOCK_BYTES
"""A member's header, with an extended one before it; more would make a look at small archives more
than four times as long as to open them."""

_PIECE_BYTES = 2**20
_MAX_PAX_BYTES = 2**16
_CHECKSUM = slice(148, 156)
_SIZE = slice(124, 136)
_TYPE = slice(156, 157)
_EXTENDED = b"xgX"
_WITHOUT_DATA = b"123456"  # links, devices, directories, FIFOs: whatever size they state
_SPARSE = b"S"
_PAX_SIZE = b" size="


def probe(promised: ExpectedFile, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with an archive, as far as its first headers and its end tell."""
    head = read(_FIRST_BYTES)
    if kind := packed.kind_of(head):  # which has an end of its own; of gzip what is inside, too
        wrong, whole = packed.probe(kind, read, size), size <= packed.SMALL_BYTES
        if wrong is None and kind == "gzip":
            look = functools.partial(_wrong_inside, promised.n_items, whole)
            wrong = packed.wrong_inside(read, look, whole=whole)
        return wrong
    if size % BLOCK_BYTES or size < _END_BYTES:
        return Mismatch("blocks of 512 bytes, two or more", f"{size} bytes")
    end = _end_of_members(lambda n_bytes, at=0: head[at : at + n_bytes], size)
    if end == 0 and (promised.n_items or size > _RECORD_BYTES):
        return Mismatch("a header at byte 0", "zeros")
    if isinstance(end, Mismatch):
        return end
    tail = head if size == len(head) else read(_END_BYTES, size - _END_BYTES)
    return None if tail.endswith(_END) else _NO_END


def prove(promised: ExpectedFile, read: Read, size: int) -> Mismatch | bool:
    """Return whether a file's own checksums prove it: those of gzip do, those of headers do not."""
    if kind := packed.kind_of(read(packed.HEAD_BYTES)):
        look = functools.partial(_wrong_inside, promised.n_items, True)
        return packed.prove(kind, read, size, look)
    return _wrong_member(read, size) or False


def is_header(block: bytes) -> bool:
    """Whether a block is a member's header: whether its checksum is that of its bytes."""
    stored = _number(block[_CHECKSUM])
    if stored is None or len(block) < BLOCK_BYTES:
        return False
    summed = block[: _CHECKSUM.start] + b" " * 8 + block[_CHECKSUM.stop :]
    # The low half of Adler-32 is 1 more than the sum of all bytes, modulo the largest prime below
    # 2**16: a tenth of the time that sum() takes, and the sum is below twice that prime.
    rest = (zlib.adler32(summed) & 0xFFFF) - 1 - stored
    if rest % 65521 == 0:
        return True
    n_high = sum(byte > 127 for byte in summed)  # of old, bytes had a sign
    return (rest - 256 * n_high) % 65521 == 0


def _end_of_members(read: Read, size: int, at: int = 0) -> int | Mismatch | None:
    """Return where zeros stand for a header, or what is wrong before; None where nothing tells."""
    while at < size:
        header = read(BLOCK_BYTES, at)
        if header == _NO_BYTES:
            return at
        if len(header) < BLOCK_BYTES:
            return None
        n_bytes = _number(header[_SIZE])
        if n_bytes is None or not is_header(header):
            return Mismatch(f"a header at byte {at}", quoted(header[:12]))
        kind = header[_TYPE]
        n_bytes = 0 if kind in _WITHOUT_DATA else n_bytes
        end = at + BLOCK_BYTES + -(-n_bytes // BLOCK_BYTES) * BLOCK_BYTES
        if end > size:
            return Mismatch(f"{end} bytes or more, for the member at byte {at}", f"{size} bytes")
        if kind == _SPARSE or (kind in _EXTENDED and _states_a_size(read, n_bytes, at)):
            return None
        at = end
    return at


def _states_a_size(read: Read, n_bytes: int, at: int) -> bool:
    """Whether an extended header may have the size of the member after it, as of one over 8 GiB."""
    if n_bytes > _MAX_PAX_BYTES:
        return True
    records = read(n_bytes, at + BLOCK_BYTES)
    return len(records) < n_bytes or _PAX_SIZE in records


def _number(field: bytes) -> int | None:
    """Return the number in a field of a header: octal digits, or binary where there are too few."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    try:
        number = int(field.rstrip(b"\0 ") or b"0", 8)
    except ValueError:
        return None
    return number if number >= 0 else None


def _wrong_member(read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with an archive, or with one that was put behind its end mark."""
    end: int | Mismatch | None = 0
    while isinstance(end, int) and end < size:
        end = _end_of_members(read, size, end)
        if isinstance(end, int):
            end = _after_zeros(read, end, size)
    return None if isinstance(end, int) else end


def _after_zeros(read: Read, at: int, size: int) -> int:
    """Return the first block from one on that is not all zeros; the size where there is none."""
    while at < size and (piece := read(min(_PIECE_BYTES, size - at), at)):
        n_zeros = len(piece) - len(piece.lstrip(b"\0"))
        if n_zeros < len(piece):
            return at + n_zeros // BLOCK_BYTES * BLOCK_BYTES
        at += len(piece)
    return size


def _wrong_inside(n_items: int | None, whole: bool, read: packed.Forward) -> Mismatch | None:
    """Return what is wrong with an archive that is packed, or with its begin; see `probe`."""
    head = read(_RECORD_BYTES + 1, 0)
    if not head.strip(b"\0") and (n_items or len(head) > _RECORD_BYTES):
        return Mismatch("a header at byte 0", "zeros")
    if not whole:
        end = _end_of_members(lambda n_bytes, at=0: head[at : at + n_bytes], _ENDLESS)
        return end if isinstance(end, Mismatch) else None
    return _wrong_member(read, _ENDLESS) or (None if read.tail() == _END else _NO_END)
