"""Checksums of 32 bits in lists: those of SFV, and of cksum. They detect accidents, and no more."""

import zlib
from collections.abc import Mapping, Sequence
from typing import Literal

from shardproof._base.opening import Read
from shardproof._base.work import go_on
from shardproof.manifest import ExpectedFile, Mismatch

WEAK = frozenset({"crc32", "cksum"})

_PIECE_BYTES = 2**20
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def agrees(
    stated: Mapping[str, Sequence[str]], promised: ExpectedFile, read: Read, size: int
) -> Mismatch | Literal["agreed"] | bool:
    """Return whether a file has the checksums that are stated of it, which is no proof."""
    texts = [text for text in stated[promised.name] if text.startswith(("crc32:", "cksum:"))]
    for text in texts:
        found = f"{text[:6]}{_crc_of(read, size, is_posix=text.startswith('cksum')):08x}"
        if found != text:
            return Mismatch(text, found)
    return bool(texts) and "agreed"


def _crc_of(read: Read, size: int, *, is_posix: bool) -> int:
    # That of cksum has the same polynomial as zlib's, with the bits of each byte and of the whole
    # the other way round; it begins at zero, and takes in the size.
    crc = 0xFFFFFFFF if is_posix else 0
    for at in range(0, size, _PIECE_BYTES):
        go_on()
        piece = read(min(_PIECE_BYTES, size - at), at)
        crc = zlib.crc32(piece.translate(_REVERSED) if is_posix else piece, crc)
    n_bytes = size.to_bytes((size.bit_length() + 7) // 8, "little").translate(_REVERSED)
    return int(f"{zlib.crc32(n_bytes, crc):032b}"[::-1], 2) if is_posix else crc
