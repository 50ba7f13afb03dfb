"""Files that begin with where their samples lie, as Streaming and LitData write them.

``u32 n`` and ``u32 offsets[n + 1]``, little endian, which count from the file's begin; the last is
where the samples end. What else lies behind the offsets is a matter of the format.
"""

import struct
from typing import NamedTuple

from shardproof._base.opening import Read
from shardproof.manifest import Mismatch

INDEX = "index.json"
INDEX_BYTES = 2**16  # how many bytes of an index tell whose it is
FIRST_BYTES = 2**13  # how many bytes of a file are read at first: those of two thousand offsets
_BYTES_BEHIND = 2**10


class SampleOffsets(NamedTuple):
    """Where the samples of a file lie: from the first one's begin to the last one's end."""

    table_end: int  # of the offsets
    begin: int
    end: int
    behind: bytes  # the first ones behind the offsets


def read_offsets(first: bytes, read: Read, size: int, n_samples: int) -> SampleOffsets | Mismatch:
    """Return where a file's samples lie, by its first `FIRST_BYTES`, or why that can't be."""
    found = int.from_bytes(first[:4], "little")
    if found != n_samples:
        return Mismatch(f"{n_samples} samples", f"{found} samples")
    table_end = 4 * (n_samples + 2)
    if table_end > size or len(first) < 8:  # or it was cut meanwhile
        return Mismatch(f"{n_samples + 1} offsets", f"{size} bytes in all")
    # Of the offsets in between, those that one read brings: a large table is longer than a page.
    places = struct.unpack_from(f"<{min(n_samples + 1, len(first) // 4 - 1)}I", first, 4)
    if list(places) != sorted(places):
        return Mismatch("samples one after the other", "offsets that go back")
    is_in_first = len(first) >= min(size, table_end + _BYTES_BEHIND)
    last = first[table_end - 4 :] if is_in_first else read(4 + _BYTES_BEHIND, table_end - 4)
    return SampleOffsets(table_end, places[0], int.from_bytes(last[:4], "little"), last[4:])
