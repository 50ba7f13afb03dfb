"""Files that are packed as a whole: known by their first bytes, looked at by their frames and ends.

zstd says how long each block is (RFC 8878), so that a cut is seen wherever it is; bzip2 and xz end
with a mark, gzip with how much it holds (RFC 1952), zlib with nothing that tells (RFC 1950). Small
files of the last two are unpacked.
"""

import itertools
import re
import zlib
from collections.abc import Callable, Iterator

from shardproof._base.messages import quoted, told
from shardproof._base.opening import Read
from shardproof.manifest import Mismatch

__all__ = ["HEAD_BYTES", "SMALL_BYTES", "Forward", "kind_of", "probe", "prove", "wrong_inside"]

HEAD_BYTES = 10  # what is to be seen of a file to know it
_BEGINS = re.compile(
    rb"(?P<gzip>\x1f\x8b\x08)|(?P<xz>\xfd7zXZ\0)|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bzip2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"
)
_PIECE_BYTES = 2**16
SMALL_BYTES = 2**16  # of gzip and zlib: up to so many are unpacked as a whole, others in part
_TAIL_BYTES = 1024
_MOST_PIECES = 64
_MOST_DEFLATED = 1032  # that a byte of gzip stands for
_MOST_BLOCKS = 4096  # of zstd, that a look follows: half a GiB, if they are as long as may be
_GZIP_OR_ZLIB = 47  # as zlib's window bits
_BZIP2_END = 0x177245385090
_END_BYTES = 11


Look = Callable[["Forward"], Mismatch | None]


def kind_of(head: bytes) -> str | None:
    """Return what a file is packed by, as its first bytes say; those of zlib say too little."""
    found = _BEGINS.match(head)
    return found and found.lastgroup


def probe(kind: str, read: Read, size: int) -> Mismatch | None:
    """Return what is wrong with the begin, the frames or the end of a file, by bounded reads."""
    head = read(HEAD_BYTES)
    if kind != kind_of(head) and kind != "zlib":
        return Mismatch(f"the beginning of {kind}", quoted(head))
    if kind == "zstd":
        return _wrong_blocks(read, size)
    last = read(_END_BYTES, max(0, size - _END_BYTES))
    bits = int.from_bytes(last, "big") >> 32  # before the checksum of bzip2, which ends in a byte
    is_whole = {
        "gzip": int.from_bytes(last[-4:], "little") <= _MOST_DEFLATED * size,
        "bzip2": any(bits >> n & 2**48 - 1 == _BZIP2_END for n in range(8)),
        "xz": last.endswith(b"YZ"),
    }
    if not is_whole.get(kind, True):
        return Mismatch(f"the end of {kind}", "other bytes: the file is cut")
    is_unpacked = kind in {"gzip", "zlib"} and size <= SMALL_BYTES
    return wrong_inside(read, lambda _: None) if is_unpacked else None


def prove(kind: str, read: Read, size: int, look: Look = lambda _: None) -> Mismatch | bool:
    """Return whether checksums prove a file, as those of gzip and zlib do; see all of zstd."""
    if kind in {"gzip", "zlib"}:
        return wrong_inside(read, look) or True
    return (kind == "zstd" and _wrong_blocks(read, size, size)) or False


class Forward:
    """Reads from pieces, never before where it has read; fewer bytes where they end."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._held, self._begin = pieces, b"", 0

    def __call__(self, n_bytes: int, at: int = 0, /) -> bytes:
        """Return bytes from a position on."""
        while (n_held := len(self._held)) < at + n_bytes - self._begin:
            if (piece := next(self._pieces, None)) is None:
                break
            n_gone = max(0, min(at - self._begin, n_held - _TAIL_BYTES))
            self._held, self._begin = self._held[n_gone:] + piece, self._begin + n_gone
        begin = at - self._begin
        return self._held[begin : begin + n_bytes]

    def tail(self) -> bytes:
        """Return the last KiB of all."""
        self(1, 2**63)
        return self._held[-_TAIL_BYTES:]


def wrong_inside(read: Read, look: Look, *, whole: bool = True) -> Mismatch | None:
    """Return what a look into a file of gzip or zlib finds, or why it, or its begin, is damaged."""
    pieces = _unpacked(read)
    inside = Forward(pieces if whole else itertools.islice(pieces, _MOST_PIECES))
    try:
        wrong = look(inside)
        if whole:
            inside.tail()
    except (EOFError, zlib.error) as error:
        return Mismatch("a packed stream whose checksums hold", told(error))
    return wrong


def _unpacked(read: Read) -> Iterator[bytes]:
    """Yield what a file of gzip or zlib holds, in small pieces; its checksums are proven."""
    at, stream, is_open = 0, zlib.decompressobj(_GZIP_OR_ZLIB), True
    while packed := read(_PIECE_BYTES, at):
        at += len(packed)
        # Another stream may follow one, or zeros.
        while packed := packed if is_open else packed.lstrip(b"\0"):
            yield stream.decompress(packed, _PIECE_BYTES)
            packed, is_open = stream.unconsumed_tail, not stream.eof
            if stream.eof:
                packed, stream = stream.unused_data, zlib.decompressobj(_GZIP_OR_ZLIB)
    if is_open:
        raise EOFError("it ends within the stream")


def _wrong_blocks(read: Read, size: int, most: int = _MOST_BLOCKS) -> Mismatch | None:
    """Walk over so many blocks of all frames of zstd; return where one is cut."""
    at, n_checksum, is_between, is_packed = 0, 0, True, False
    for _block in range(most):
        if is_between and is_packed and at == size:
            return None
        head = read(8, at)
        if is_between:
            n_bytes, n_checksum = _zstd_header(head)
            is_between = n_checksum < 0
            is_packed |= not is_between
            if not n_bytes:
                return Mismatch(f"a frame of zstd at byte {at}", quoted(head))
        else:
            block = int.from_bytes(head[:3], "little")
            is_between = bool(block & 1)
            n_bytes = 3 + (1 if block >> 1 & 3 == 1 else block >> 3) + n_checksum * is_between
        at += n_bytes
        if at > size:
            return Mismatch(f"{at} bytes of zstd, or more", f"{size} bytes")
    return None


def _zstd_header(head: bytes) -> tuple[int, int]:
    """Return how long a frame's header is, and its checksum: -1 of one that is to be skipped."""
    if head[1:4] == b"\x2a\x4d\x18":
        return 8 + int.from_bytes(head[4:], "little"), -1
    if head[:4] != b"\x28\xb5\x2f\xfd" or len(head) < 5:
        return 0, 0
    descriptor, is_single = head[4], head[4] >> 5 & 1
    n_size = (is_single, 2, 4, 8)[descriptor >> 6]
    return 6 - is_single + (0, 1, 2, 4)[descriptor & 3] + n_size, descriptor & 4
